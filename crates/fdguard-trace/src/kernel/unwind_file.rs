//! The unwind tables of a file with code, read once for all processes that map it.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use framehop::ExplicitModuleSectionInfo;
use object::elf::{PF_X, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache};

type Header = object::elf::FileHeader64<Endianness>;

/// A file's segments and tables. Addresses are the file's own.
#[derive(Debug, Default)]
pub(super) struct UnwindFile {
    loads: Vec<LoadedSegment>,
    sections: Sections,
}

/// A part of the file that is loaded.
#[derive(Clone, Copy, Debug)]
struct LoadedSegment {
    offset: u64,
    size: u64,
    address: u64,
    is_code: bool,
}

#[derive(Clone, Debug, Default)]
struct Sections {
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
    header: Option<TableBytes>,
    frames: Option<TableBytes>,
    debug_frames: Option<TableBytes>,
}

/// A section with its contents.
#[derive(Clone, Debug)]
struct TableBytes {
    range: Range<u64>,
    bytes: Arc<[u8]>,
}

impl UnwindFile {
    /// Reads the tables of a file; `None` if it is not a 64-bit ELF file.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let header = Header::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let mut file = Self::default();
        for segment in header.program_headers(endian, &cache).ok()? {
            if segment.p_type(endian) == PT_LOAD {
                file.loads.push(LoadedSegment {
                    offset: segment.p_offset(endian),
                    size: segment.p_filesz(endian),
                    address: segment.p_vaddr(endian),
                    is_code: segment.p_flags(endian).contains(PF_X),
                });
            }
        }
        // Without section headers there are no tables to be found.
        let Ok(sections) = header.sections(endian, &cache) else {
            return Some(file);
        };
        for section in sections.iter() {
            let Ok(name) = sections.section_name(endian, section) else {
                continue;
            };
            let start = section.sh_addr(endian);
            let range = start..start.saturating_add(section.sh_size(endian));
            let bytes = || {
                let bytes = section.data(endian, &cache).ok()?;
                Some(TableBytes {
                    range: range.clone(),
                    bytes: bytes.into(),
                })
            };
            let found = &mut file.sections;
            match name {
                b".text" => found.text = Some(range),
                b".got" => found.got = Some(range),
                b".eh_frame_hdr" => found.header = bytes(),
                b".eh_frame" => found.frames = bytes(),
                b".debug_frame" => found.debug_frames = bytes(),
                _ => {}
            }
        }
        Some(file)
    }

    /// What is added to the file's addresses where this part of it is mapped as code. Segments may
    /// share a page, which is mapped for each of them.
    pub(super) fn bias(&self, mapped_at: u64, offset: u64) -> Option<u64> {
        const PAGE: u64 = 0xfff;
        let contains = |one: &&LoadedSegment| {
            let first = one.offset & !PAGE;
            (first..one.offset.saturating_add(one.size)).contains(&offset)
        };
        let segment = self.loads.iter().filter(|one| one.is_code).find(contains)?;
        let address = segment
            .address
            .wrapping_sub(segment.offset)
            .wrapping_add(offset);
        Some(mapped_at.wrapping_sub(address))
    }

    /// The lowest address.
    pub(super) fn base(&self) -> u64 {
        let addresses = self.loads.iter().map(|one| one.address & !0xfff);
        addresses.min().unwrap_or(0)
    }

    /// The tables for the unwinder.
    pub(super) fn sections(&self) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        let Sections {
            text,
            got,
            header,
            frames,
            debug_frames,
        } = self.sections.clone();
        let range = |table: &Option<TableBytes>| table.as_ref().map(|one| one.range.clone());
        let bytes = |table: Option<TableBytes>| table.map(|one| one.bytes);
        ExplicitModuleSectionInfo {
            base_svma: self.base(),
            text_svma: text,
            got_svma: got,
            eh_frame_hdr_svma: range(&header),
            eh_frame_svma: range(&frames),
            eh_frame_hdr: bytes(header),
            eh_frame: bytes(frames),
            debug_frame: bytes(debug_frames),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::UnwindFile;

    #[test]
    fn a_program_has_tables_and_a_text_has_none() {
        let program = std::env::current_exe().unwrap();
        let file = UnwindFile::read(&program).unwrap();
        assert!(
            file.sections()
                .eh_frame
                .is_some_and(|table| !table.is_empty())
        );
        let text = UnwindFile::read(std::path::Path::new("/etc/passwd"));
        assert!(text.is_none());
    }

    #[test]
    fn the_bias_is_that_of_the_segment_that_is_mapped() {
        let program = std::env::current_exe().unwrap();
        let file = UnwindFile::read(&program).unwrap();
        let code = file.loads.iter().find(|one| one.is_code).unwrap();
        let offset = code.offset & !0xfff;
        let address = (code.address - code.offset) + offset;
        assert_eq!(
            file.bias(0x7f00_0000_0000 + address, offset),
            Some(0x7f00_0000_0000)
        );
        assert_eq!(file.bias(0x1000, 1 << 40), None);
    }
}
