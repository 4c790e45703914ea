//! The parts of the table, and the functions in it.

use super::image::ProgramImage;
use super::module::{Format, Module, Part};
use super::values::value_at;

/// The table of a module, in memory.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) module: Module,
    function_names: Vec<u8>,
    units: Vec<u8>,
    file_names: Vec<u8>,
    values: Vec<u8>,
    functions: Vec<u8>,
    /// The index: the entry of each function, and where its record begins.
    entries: Vec<(u64, u64)>,
}

/// A function of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) entry: u64,
    /// Where its record begins in the part of functions.
    record: usize,
}

/// Numbers of tables that a function has.
const INLINED_CALLS: usize = 2;
const INLINE_TREE: usize = 3;

impl Tables {
    pub(super) fn read(image: &ProgramImage, module: Module) -> Option<Self> {
        let part = |part: Part| image.bytes(part.address, part.length);
        let mut tables = Self {
            module,
            function_names: part(module.function_names)?,
            units: part(module.units)?,
            file_names: part(module.file_names)?,
            values: part(module.values)?,
            functions: part(module.functions)?,
            entries: Vec::new(),
        };
        tables.entries = tables.read_index(image)?;
        Some(tables)
    }

    fn read_index(&self, image: &ProgramImage) -> Option<Vec<(u64, u64)>> {
        let size = match self.module.format {
            Format::Go116 => 16,
            Format::Go118 | Format::Go120 => 8,
        };
        let length = self.module.count.checked_mul(size)?;
        let bytes = self.functions.get(..length)?;
        let mut entries = Vec::with_capacity(self.module.count);
        for (number, entry) in bytes.chunks_exact(size).enumerate() {
            entries.push(match self.module.format {
                Format::Go116 => {
                    let place = (number as u64).checked_mul(16)?;
                    let place = self.module.functions.address.checked_add(place)?;
                    (image.pointer(place)?, u64_at(entry, 8)?)
                }
                Format::Go118 | Format::Go120 => {
                    let start = self.module.text.checked_add(u64::from(u32_at(entry, 0)?))?;
                    (start, u64::from(u32_at(entry, 4)?))
                }
            });
        }
        entries
            .is_sorted_by_key(|(entry, _)| *entry)
            .then_some(entries)
    }

    /// The function that contains an address.
    pub(super) fn function(&self, address: u64) -> Option<Function> {
        if !(self.module.text..self.module.text_end).contains(&address) {
            return None;
        }
        let after = self.entries.partition_point(|(entry, _)| *entry <= address);
        // The last entry only ends the one before.
        let (entry, record) = *self.entries.get(after.checked_sub(1)?)?;
        (after < self.entries.len()).then_some(())?;
        let record = usize::try_from(record).ok()?;
        Some(Function { entry, record })
    }

    /// The first function with this name.
    pub(super) fn named(&self, name: &str) -> Option<Function> {
        let count = self.entries.len().checked_sub(1)?;
        let mut entries = self.entries.get(..count)?.iter();
        entries.find_map(|(entry, record)| {
            let record = usize::try_from(*record).ok()?;
            let function = Function {
                entry: *entry,
                record,
            };
            (self.name(function)? == name.as_bytes()).then_some(function)
        })
    }

    pub(super) fn name(&self, function: Function) -> Option<&[u8]> {
        self.name_at(self.field(function, 0)?)
    }

    /// The name at an offset. Names follow each other, each with a zero at its end.
    pub(super) fn name_at(&self, offset: u32) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let is_start = start == 0 || self.function_names.get(start - 1) == Some(&0);
        is_start.then(|| text_at(&self.function_names, start))?
    }

    /// The file and the line of an instruction.
    pub(super) fn place(&self, function: Function, address: u64) -> Option<(&[u8], u32)> {
        let line = self.value(function, self.field(function, 5)?, address)?;
        let file = self.value(function, self.field(function, 4)?, address)?;
        let unit = self.field(function, 7)?;
        let number = unit.checked_add_signed(file)?;
        let offset = u32_at(&self.units, usize::try_from(number).ok()?.checked_mul(4)?)?;
        let name = text_at(&self.file_names, usize::try_from(offset).ok()?)?;
        Some((name, u32::try_from(line).ok()?))
    }

    /// Which inlined call an instruction belongs to; `None` for the function itself.
    pub(super) fn inlined_call(&self, function: Function, address: u64) -> Option<u32> {
        let count = usize::try_from(self.field(function, 6)?).ok()?;
        if count <= INLINED_CALLS {
            return None;
        }
        let place = self
            .after_fields(function)?
            .checked_add(4 * INLINED_CALLS)?;
        let table = u32_at(&self.functions, place)?;
        let call = self.value(function, table, address)?;
        u32::try_from(call).ok()
    }

    /// The address of the tree of the calls that were inlined into a function.
    pub(super) fn tree(&self, image: &ProgramImage, function: Function) -> Option<u64> {
        let after = self.after_fields(function)?;
        let count = self.functions.get(after.checked_sub(1)?)?;
        if usize::from(*count) <= INLINE_TREE {
            return None;
        }
        let values = usize::try_from(self.field(function, 6)?).ok()?;
        let data = after.checked_add(values.checked_mul(4)?)?;
        match self.module.format {
            Format::Go116 => {
                let place = data.next_multiple_of(8).checked_add(8 * INLINE_TREE)?;
                let place = self.module.functions.address.checked_add(place as u64)?;
                image.pointer(place).filter(|tree| *tree != 0)
            }
            Format::Go118 | Format::Go120 => {
                let offset = u32_at(&self.functions, data.checked_add(4 * INLINE_TREE)?)?;
                let is_there = offset != u32::MAX;
                let base = self.module.trees.filter(|_| is_there)?;
                base.checked_add(u64::from(offset))
            }
        }
    }

    /// The fields after the entry, 4 bytes each: name, arguments, deferreturn, pcsp, pcfile, pcln,
    /// npcdata, cuOffset.
    fn field(&self, function: Function, number: usize) -> Option<u32> {
        let place = function.record.checked_add(self.entry_size())?;
        u32_at(&self.functions, place.checked_add(4 * number)?)
    }

    /// Where the fixed fields of a function's record end.
    fn after_fields(&self, function: Function) -> Option<usize> {
        let size = match self.module.format {
            Format::Go116 | Format::Go120 => 44,
            Format::Go118 => 40,
        };
        function.record.checked_add(size)
    }

    fn entry_size(&self) -> usize {
        match self.module.format {
            Format::Go116 => 8,
            Format::Go118 | Format::Go120 => 4,
        }
    }

    fn value(&self, function: Function, table: u32, address: u64) -> Option<i32> {
        // The first byte of the part is unused: 0 stands for no table.
        let table = usize::try_from(table).ok().filter(|table| *table != 0)?;
        let target = address.checked_sub(function.entry)?;
        value_at(self.values.get(table..)?, target, self.module.quantum)
    }
}

pub(super) fn u32_at(bytes: &[u8], place: usize) -> Option<u32> {
    let word = bytes.get(place..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word))
}

fn u64_at(bytes: &[u8], place: usize) -> Option<u64> {
    let word = bytes.get(place..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*word))
}

fn text_at(bytes: &[u8], start: usize) -> Option<&[u8]> {
    let rest = bytes.get(start..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    rest.get(..end)
}
