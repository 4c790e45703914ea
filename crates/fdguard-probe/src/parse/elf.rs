//! Information from the tables of a program or library: whether it imports `select()`, and whether
//! it contains a runtime that is known to use it or not. Reads only the headers, the dynamic
//! symbols and their names; the file may be anything, even crafted to deceive.

use std::cell::Cell;
use std::io::{Read, Seek};
use std::ops::Range;

use bstr::ByteSlice as _;
use object::Endianness;
use object::elf::{ELFMAG, FileHeader32, FileHeader64, PT_DYNAMIC, PT_INTERP, SHT_DYNSYM};
use object::read::elf::{
    FileHeader, ProgramHeader as _, SectionHeader as _, SectionTable, Sym as _,
};
use object::read::{ReadCache, ReadRef};

/// Properties of an ELF object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ElfObject {
    /// Whether it requests a dynamic linker: otherwise it is statically linked.
    pub interpreted: bool,
    /// Whether it imports `select` or `pselect`.
    pub imports_select: bool,
    /// Whether it imports the check that a fortified build puts into `FD_SET`.
    pub imports_set_check: bool,
    /// Whether it was built with fortification: it imports another such check of the C library.
    pub fortified: bool,
    /// Whether it contains the Python interpreter.
    pub python: bool,
    /// Whether it contains Node.js.
    pub node: bool,
    /// Whether the Go linker made it.
    pub go: bool,
}

/// The tables are inconsistent, missing, or too large to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreadableElf;

impl From<object::read::Error> for UnreadableElf {
    fn from(_: object::read::Error) -> Self {
        Self
    }
}

impl ElfObject {
    /// Reads the tables of a file, and subtracts the bytes read from the budget. `None` if it is
    /// not an ELF object.
    pub fn read(file: impl Read + Seek, budget: &mut u64) -> Result<Option<Self>, UnreadableElf> {
        let data = Limited {
            cache: ReadCache::new(file),
            left: Cell::new(*budget),
        };
        let found = Self::examine(&data);
        *budget = data.left.get();
        found
    }

    fn examine<R: Read + Seek>(data: &Limited<R>) -> Result<Option<Self>, UnreadableElf> {
        let Ok(start) = data.read_bytes_at(0, 16) else {
            return Ok(None);
        };
        match start.strip_prefix(&ELFMAG).and_then(<[u8]>::first) {
            None => Ok(None),
            Some(1) => tables::<FileHeader32<Endianness>, _>(data).map(Some),
            Some(2) => tables::<FileHeader64<Endianness>, _>(data).map(Some),
            Some(_) => Err(UnreadableElf),
        }
    }

    fn note_import(&mut self, name: &[u8]) {
        match name {
            b"select" | b"pselect" | b"__select" | b"__pselect" | b"__select64"
            | b"__pselect64" => self.imports_select = true,
            b"__fdelt_chk" | b"__fdelt_warn" => self.imports_set_check = true,
            _ => self.fortified |= name.ends_with(b"_chk"),
        }
    }

    fn note_export(&mut self, name: &[u8]) {
        match name {
            b"Py_Main" => self.python = true,
            b"napi_create_function" => self.node = true,
            _ => {}
        }
    }
}

fn tables<'a, Elf, R>(data: &'a Limited<R>) -> Result<ElfObject, UnreadableElf>
where
    Elf: FileHeader<Endian = Endianness>,
    R: Read + Seek,
{
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    let has = |kind| segments.iter().any(|one| one.p_type(endian) == kind);
    let sections: SectionTable<'a, Elf, &'a Limited<R>> = header.sections(endian, data)?;
    let mut object = ElfObject {
        interpreted: has(PT_INTERP),
        ..ElfObject::default()
    };
    if !sections.is_empty() {
        let names = sections.section(header.shstrndx(endian, data).map(section_index)?)?;
        object.go = names.data(endian, data)?.contains_str(b".go.buildinfo\0");
    }
    let symbols = sections
        .iter()
        .find(|section| section.sh_type(endian) == SHT_DYNSYM);
    let Some(section) = symbols else {
        // A dynamically linked object must have symbols: without a list of sections they cannot be
        // found.
        let silent = has(PT_DYNAMIC) && !object.go;
        return if silent {
            Err(UnreadableElf)
        } else {
            Ok(object)
        };
    };
    let names = sections.section(section.link(endian))?.data(endian, data)?;
    for symbol in section.data_as_array::<Elf::Sym, _>(endian, data)? {
        let at = symbol.st_name(endian) as usize;
        let name = names.get(at..).ok_or(UnreadableElf)?;
        let name = &name[..name.find_byte(0).unwrap_or(name.len())];
        if symbol.is_undefined(endian) {
            object.note_import(name);
        } else {
            object.note_export(name);
        }
    }
    Ok(object)
}

fn section_index(number: u32) -> object::SectionIndex {
    object::SectionIndex(number as usize)
}

/// A file that is read in the requested ranges, up to a number of bytes: a header that claims a
/// table of gigabytes costs nothing.
struct Limited<R: Read + Seek> {
    cache: ReadCache<R>,
    left: Cell<u64>,
}

impl<R: Read + Seek> Limited<R> {
    fn spend(&self, size: u64) -> Result<(), ()> {
        let left = self.left.get().checked_sub(size).ok_or(())?;
        self.left.set(left);
        Ok(())
    }
}

impl<'a, R: Read + Seek> ReadRef<'a> for &'a Limited<R> {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.spend(size)?;
        (&self.cache).read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let found = (&self.cache).read_bytes_at_until(range, delimiter)?;
        self.spend(found.len() as u64)?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests;
