//! The unwind tables of a file with code, read once for all processes that map it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use fdguard_attach::is_usable_index;
use framehop::ExplicitModuleSectionInfo;
use gimli::{
    BaseAddresses, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, UnwindSection,
};
use object::elf::{PF_X, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, ReadCache};

use crate::go::is_go;

/// The most code that is read to be followed.
const MOST_CODE: u64 = 64 << 20;

type Header = object::elf::FileHeader64<Endianness>;

/// A file's segments and tables. Addresses are the file's own.
#[derive(Debug, Default)]
pub(super) struct UnwindFile {
    path: PathBuf,
    loads: Vec<LoadedSegment>,
    sections: Sections,
    /// The addresses that the tables cover, sorted; found when they are first needed.
    covered: OnceLock<Vec<Range<u64>>>,
    /// The code itself, if it was needed.
    code: OnceLock<Option<TableBytes>>,
    is_go: OnceLock<bool>,
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
    /// Reads the tables of a file; a damaged index is left out. `None` if it is not a 64-bit ELF
    /// file.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let cache = ReadCache::new(File::open(path).ok()?);
        let header = Header::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        let mut file = Self {
            path: path.to_owned(),
            ..Self::default()
        };
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
                b".eh_frame_hdr" => {
                    found.header =
                        bytes().filter(|table| is_usable_index(&table.bytes, table.range.start));
                }
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

    /// The same for an executed program, whose first segment of code begins there.
    pub(super) fn program_bias(&self, code_at: u64) -> Option<u64> {
        let code = self.loads.iter().filter(|one| one.is_code);
        let first = code.map(|one| one.address).min()?;
        Some(code_at.wrapping_sub(first))
    }

    /// Whether the tables tell how to leave the function at this address.
    pub(super) fn covers(&self, address: u64) -> bool {
        let covered = self.covered.get_or_init(|| covered(&self.sections));
        let after = covered.partition_point(|range| range.start <= address);
        let range = after.checked_sub(1).and_then(|at| covered.get(at));
        range.is_some_and(|range| range.contains(&address))
    }

    /// Whether it is a Go program, which has frame pointers everywhere.
    pub(super) fn is_go(&self) -> bool {
        *self.is_go.get_or_init(|| is_go(&self.path))
    }

    /// Its code, and the address where that begins.
    pub(super) fn code(&self) -> Option<(&[u8], u64)> {
        let code = self.code.get_or_init(|| {
            let segment = self.loads.iter().find(|one| one.is_code)?;
            let size = usize::try_from(segment.size.min(MOST_CODE)).ok()?;
            let mut bytes = vec![0; size];
            let file = File::open(&self.path).ok()?;
            file.read_exact_at(&mut bytes, segment.offset).ok()?;
            Some(TableBytes {
                range: segment.address..segment.address.checked_add(segment.size)?,
                bytes: bytes.into(),
            })
        });
        code.as_ref().map(|code| (&*code.bytes, code.range.start))
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

/// The ranges of all entries of the tables.
fn covered(sections: &Sections) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let bases = |table: &TableBytes| {
        let bases = BaseAddresses::default().set_eh_frame(table.range.start);
        let text = sections.text.as_ref().map_or(0, |text| text.start);
        let got = sections.got.as_ref().map_or(0, |got| got.start);
        bases.set_text(text).set_got(got)
    };
    // The unwinder uses one of them.
    match (&sections.frames, &sections.debug_frames) {
        (Some(table), _) => {
            let frames = EhFrame::new(&table.bytes, LittleEndian);
            add_entries(&frames, &bases(table), &mut found);
        }
        (None, Some(table)) => {
            let frames = DebugFrame::new(&table.bytes, LittleEndian);
            add_entries(&frames, &bases(table), &mut found);
        }
        (None, None) => {}
    }
    found.sort_unstable_by_key(|range| range.start);
    found
}

fn add_entries<'b, S>(frames: &S, bases: &BaseAddresses, found: &mut Vec<Range<u64>>)
where
    S: UnwindSection<EndianSlice<'b, LittleEndian>>,
{
    let mut entries = frames.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(entry) = partial.parse(S::cie_from_offset)
        {
            let start = entry.initial_address();
            found.push(start..start.saturating_add(entry.len()));
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
