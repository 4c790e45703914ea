//! A loaded ELF file as it is in memory: its headers and its exported functions. Nothing is read
//! from disk: a program in a container may have files that cannot be opened here.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use crate::x86_64::memory::{Memory, number};

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_GNU_EH_FRAME: u64 = 0x6474_e550;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const SYMBOL: usize = 24;
/// More symbols than any library has: what is beyond is a damaged table.
const MOST_SYMBOLS: u64 = 1 << 20;

/// The kind of an ELF file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// 1 for 32 bits, 2 for 64.
    pub(crate) class: u8,
    /// 62 is x86-64.
    pub(crate) machine: u64,
}

/// The headers of a loaded file.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// What is added to the file's addresses.
    bias: u64,
    loads: Vec<Range<u64>>,
    dynamic: Option<Range<u64>>,
    /// The name of the dynamic loader.
    pub(crate) interpreter: Option<Vec<u8>>,
    /// The index of the unwind table.
    pub(crate) eh_frame_hdr: Option<Range<u64>>,
}

/// A function by its address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Functions {
    by_start: BTreeMap<u64, Function>,
    /// Data and functions by name.
    by_name: BTreeMap<Vec<u8>, u64>,
}

#[derive(Clone, Debug, Default)]
struct Function {
    size: u64,
    names: Vec<Vec<u8>>,
}

impl Machine {
    /// Reads the first bytes of an ELF file.
    pub(crate) fn read(header: &[u8]) -> Option<Self> {
        (header.starts_with(b"\x7fELF") && header.len() >= 20).then(|| Self {
            class: header.get(4).copied().unwrap_or_default(),
            machine: number(header, 18, 2),
        })
    }
}

impl Image {
    /// Reads the headers of the file that is mapped at this address.
    pub(crate) fn read(memory: &Memory, base: u64) -> io::Result<Self> {
        let header = memory.bytes(base, 64)?;
        let is_elf64 = Machine::read(&header).is_some_and(|found| found.class == 2);
        if !is_elf64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let count = usize::try_from(number(&header, 56, 2)).unwrap_or(0);
        let table = memory.bytes(base.wrapping_add(number(&header, 32, 8)), count * 56)?;
        let mut image = Self {
            bias: 0,
            loads: Vec::new(),
            dynamic: None,
            interpreter: None,
            eh_frame_hdr: None,
        };
        let first_load = table
            .chunks_exact(56)
            .find(|entry| number(entry, 0, 4) == PT_LOAD)
            .ok_or(io::ErrorKind::InvalidData)?;
        let file_start = number(first_load, 16, 8).wrapping_sub(number(first_load, 8, 8));
        image.bias = base.wrapping_sub(file_start & !0xfff);
        for entry in table.chunks_exact(56) {
            let start = image.bias.wrapping_add(number(entry, 16, 8));
            let range = start..start.wrapping_add(number(entry, 40, 8));
            match number(entry, 0, 4) {
                PT_LOAD => image.loads.push(range),
                PT_DYNAMIC => image.dynamic = Some(range),
                PT_GNU_EH_FRAME => image.eh_frame_hdr = Some(range),
                PT_INTERP => image.interpreter = memory.bytes(start, size(&range)).ok(),
                _ => {}
            }
        }
        Ok(image)
    }

    /// The loaded segment that contains an address.
    pub(crate) fn segment(&self, address: u64) -> Option<Range<u64>> {
        let mut loads = self.loads.iter();
        loads.find(|load| load.contains(&address)).cloned()
    }

    pub(crate) fn is_dynamic(&self) -> bool {
        self.dynamic.is_some()
    }

    /// Reads what it exports.
    pub(crate) fn functions(&self, memory: &Memory) -> io::Result<Functions> {
        let Some(tables) = self.tables(memory)? else {
            return Ok(Functions::default());
        };
        let symbols = memory.bytes(tables.symbols, tables.count * SYMBOL)?;
        let names = memory.bytes(tables.names, tables.names_size)?;
        let mut functions = Functions::default();
        for symbol in symbols.chunks_exact(SYMBOL) {
            functions.add(symbol, &names, self.bias);
        }
        Ok(functions)
    }

    fn tables(&self, memory: &Memory) -> io::Result<Option<Tables>> {
        let Some(range) = &self.dynamic else {
            return Ok(None);
        };
        let bytes = memory.bytes(range.start, size(range))?;
        let value = |tag: u64| {
            let mut entries = bytes.chunks_exact(16);
            entries
                .find(|entry| number(entry, 0, 8) == tag)
                .map(|entry| number(entry, 8, 8))
        };
        // glibc adds the bias in place; the vdso and other loaders leave the file's addresses.
        let address = |tag: u64| {
            value(tag).map(|found| {
                if found < self.bias {
                    found.wrapping_add(self.bias)
                } else {
                    found
                }
            })
        };
        let (Some(symbols), Some(names)) = (address(DT_SYMTAB), address(DT_STRTAB)) else {
            return Ok(None);
        };
        let count = match (address(DT_GNU_HASH), address(DT_HASH)) {
            (Some(hash), _) => count_by_gnu_hash(memory, hash)?,
            (None, Some(hash)) => number(&memory.bytes(hash, 8)?, 4, 4),
            (None, None) => 0,
        };
        if count > MOST_SYMBOLS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(Tables {
            symbols,
            names,
            names_size: usize::try_from(value(DT_STRSZ).unwrap_or(0)).unwrap_or(0),
            count: usize::try_from(count).unwrap_or(0),
        }))
    }
}

struct Tables {
    symbols: u64,
    names: u64,
    names_size: usize,
    count: usize,
}

/// The symbol table has no length: the last chain of the last bucket ends with its last symbol.
fn count_by_gnu_hash(memory: &Memory, hash: u64) -> io::Result<u64> {
    let header = memory.bytes(hash, 16)?;
    let [buckets, first, bloom] = [0, 4, 8].map(|at| number(&header, at, 4));
    if buckets > MOST_SYMBOLS || bloom > MOST_SYMBOLS {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // Any sum of what the memory holds is an address: one that is not mapped cannot be read.
    let table = hash.wrapping_add(16 + bloom * 8);
    let heads = memory.bytes(table, usize::try_from(buckets * 4).unwrap_or(0))?;
    let heads = heads.chunks_exact(4).map(|head| number(head, 0, 4));
    let mut last = heads.max().unwrap_or(0);
    if last < first {
        return Ok(first);
    }
    let chains = table.wrapping_add(buckets * 4);
    while last < MOST_SYMBOLS {
        let link = memory.bytes(chains.wrapping_add((last - first) * 4), 4)?;
        last += 1;
        if number(&link, 0, 4) & 1 == 1 {
            break;
        }
    }
    Ok(last)
}

impl Functions {
    fn add(&mut self, symbol: &[u8], names: &[u8], bias: u64) {
        let kind = number(symbol, 4, 1) & 0xf;
        let section = number(symbol, 6, 2);
        // A function or one that is chosen at start (memcpy), defined here.
        if section == 0 || !matches!(kind, 2 | 10) {
            return;
        }
        let at = usize::try_from(number(symbol, 0, 4)).unwrap_or(usize::MAX);
        let name = names.get(at..).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let start = bias.wrapping_add(number(symbol, 8, 8));
        if kind == 2 {
            self.by_name.insert(name.to_vec(), start);
        }
        let function = self.by_start.entry(start).or_default();
        function.size = function.size.max(number(symbol, 16, 8));
        function.names.push(name.to_vec());
    }

    /// Only those with such a name.
    pub(crate) fn only(mut self, is_wanted: fn(&[u8]) -> bool) -> Self {
        self.by_name.retain(|name, _| is_wanted(name));
        self.by_start
            .retain(|_, function| function.names.iter().any(|name| is_wanted(name)));
        self
    }

    /// The address of a function.
    pub(crate) fn address(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// All names of the function that contains an address; none if it is not exported.
    pub(crate) fn names_at(&self, address: u64) -> &[Vec<u8>] {
        match self.by_start.range(..=address).next_back() {
            Some((start, function)) if address - start < function.size => &function.names,
            _ => &[],
        }
    }
}

fn size(range: &Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start))
        .unwrap_or(0)
        .min(1 << 24)
}

/// Reads any memory as a loaded file, for the fuzz target: addresses are places in the bytes.
#[cfg(feature = "fuzzing")]
pub fn fuzz_image(bytes: &[u8]) {
    let Ok(memory) = Memory::of_bytes(bytes) else {
        return;
    };
    let Ok(image) = Image::read(&memory, 0) else {
        return;
    };
    let _segment = (image.segment(0), image.is_dynamic());
    if let Ok(functions) = image.functions(&memory) {
        let functions = functions.only(|name| name.starts_with(b"d"));
        let _address = functions.address(b"dlopen");
        let _names = functions.names_at(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::{Image, Memory};

    /// A header, one loaded part of the file, and the dynamic part that the entries describe.
    fn image_with(dynamic: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[18] = 62;
        bytes[32] = 64;
        bytes[56] = 2;
        let dynamic_size = dynamic.len() as u64 * 16;
        let headers = [
            [1_u64, 0, 0, 0, 4096, 4096, 0],
            [2, 176, 176, 176, dynamic_size, dynamic_size, 0],
        ];
        bytes.extend(
            headers
                .as_flattened()
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        let entries = dynamic.iter().flat_map(|(tag, value)| [*tag, *value]);
        bytes.extend(entries.flat_map(u64::to_le_bytes));
        bytes.resize(4096, 0);
        bytes
    }

    #[test]
    fn a_table_of_names_that_claims_all_memory_is_refused() {
        let bytes = image_with(&[(5, 512), (6, 512), (10, u64::MAX), (4, 1024)]);
        let memory = Memory::of_bytes(&bytes).unwrap();
        let image = Image::read(&memory, 0).unwrap();
        assert!(image.is_dynamic());
        image.functions(&memory).unwrap_err();
    }

    #[test]
    fn a_hash_table_at_the_end_of_all_addresses_is_refused() {
        let bytes = image_with(&[(5, 512), (6, 512), (10, 8), (0x6fff_fef5, u64::MAX - 8)]);
        let memory = Memory::of_bytes(&bytes).unwrap();
        let image = Image::read(&memory, 0).unwrap();
        image.functions(&memory).unwrap_err();
    }

    #[test]
    fn headers_beyond_all_addresses_are_refused() {
        let mut bytes = image_with(&[]);
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        let memory = Memory::of_bytes(&bytes).unwrap();
        Image::read(&memory, 8).unwrap_err();
        Image::read(&memory, 0).unwrap_err();
    }
}
