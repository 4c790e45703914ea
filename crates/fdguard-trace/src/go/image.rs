//! The memory of a program as its file describes it: bytes by link-time address.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use object::Endianness;
use object::elf::{DT_RELA, DT_RELASZ, FileHeader64, PF_X, PT_LOAD};
use object::read::ReadRef;
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _};

/// Relocations by the address of the program alone: of x86-64 and of AArch64.
const RELATIVE: [u64; 2] = [8, 1027];
/// How much is searched at a time.
const STEP: usize = 1 << 20;

/// Where the bytes of a file come from.
#[derive(Debug)]
pub(super) enum ByteSource {
    File(File),
    Memory(Vec<u8>),
}

impl ByteSource {
    /// Exactly this many bytes, or nothing.
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        match self {
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).ok()?;
                let read = bytes.get(start..start.checked_add(length)?);
                read.map(<[u8]>::to_vec)
            }
            Self::File(file) => {
                // A corrupt length must not be allocated before it is known to be there.
                let size = file.metadata().ok()?.len();
                if offset.checked_add(length as u64)? > size {
                    return None;
                }
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
        }
    }
}

/// A program's segments and relocations, and the file that they are read from.
#[derive(Debug)]
pub(super) struct ProgramImage {
    source: ByteSource,
    segments: Vec<Segment>,
    /// The table and the description of the module, where sections name them.
    named: Vec<Section>,
    /// Words that the loader fills in: where, and with which link-time address.
    relocations: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    is_code: bool,
}

#[derive(Debug)]
struct Section {
    name: Vec<u8>,
    address: u64,
}

impl ProgramImage {
    /// The image of an ELF file for a 64-bit little-endian machine. `file` is read for its headers,
    /// `source` for everything else.
    pub(super) fn parse<'d, R: ReadRef<'d>>(file: R, source: ByteSource) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        if endian != Endianness::Little {
            return None;
        }
        let headers = header.program_headers(endian, file).ok()?;
        let loaded = headers.iter().filter(|one| one.p_type(endian) == PT_LOAD);
        let segments = loaded.map(|one| Segment {
            address: one.p_vaddr(endian),
            offset: one.p_offset(endian),
            size: one.p_filesz(endian),
            is_code: one.p_flags(endian).contains(PF_X),
        });
        let mut image = Self {
            source,
            segments: segments.collect(),
            named: Vec::new(),
            relocations: Vec::new(),
        };
        // Sections may be stripped: then there are no names.
        if let Ok(sections) = header.sections(endian, file) {
            let section = |one| Section {
                name: sections
                    .section_name(endian, one)
                    .unwrap_or_default()
                    .to_vec(),
                address: one.sh_addr(endian),
            };
            image.named = sections.iter().map(section).collect();
        }
        let dynamic = headers
            .iter()
            .find_map(|one| one.dynamic(endian, file).ok()?);
        if let Some(entries) = dynamic {
            let value = |tag| {
                let mut entries = entries.iter();
                let found = entries.find(|one| one.d_tag(endian) == tag)?;
                Some(found.d_val(endian))
            };
            let found = image.read_relocations(value(DT_RELA), value(DT_RELASZ));
            image.relocations = found.unwrap_or_default();
        }
        Some(image)
    }

    /// The words that the loader fills in with addresses of the program, by place.
    fn read_relocations(&self, table: Option<u64>, size: Option<u64>) -> Option<Vec<(u64, u64)>> {
        let bytes = self.bytes(table?, usize::try_from(size?).ok()?)?;
        let (words, _) = bytes.as_chunks::<8>();
        let relocations = words.chunks_exact(3).filter_map(|one| {
            let [place, kind, value] = *one else {
                return None;
            };
            let kind = u64::from_le_bytes(kind);
            RELATIVE
                .contains(&kind)
                .then(|| (u64::from_le_bytes(place), u64::from_le_bytes(value)))
        });
        let mut relocations: Vec<(u64, u64)> = relocations.collect();
        relocations.sort_unstable();
        Some(relocations)
    }

    /// The address of the first section whose name ends like this.
    pub(super) fn section(&self, ending: &str) -> Option<u64> {
        let mut named = self.named.iter();
        let found = named.find(|one| one.name.ends_with(ending.as_bytes()))?;
        (found.address != 0).then_some(found.address)
    }

    /// The bytes at an address, as they are in the file.
    pub(super) fn bytes(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let segment = self.segment(address)?;
        let inside = address - segment.address;
        let end = inside.checked_add(length as u64)?;
        if end > segment.size {
            return None;
        }
        self.source
            .read(segment.offset.checked_add(inside)?, length)
    }

    /// Whether the address is in a segment that is executed.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|one| one.is_code)
    }

    /// The pointer at an address, with what the loader would fill in.
    pub(super) fn pointer(&self, address: u64) -> Option<u64> {
        if let Ok(at) = self
            .relocations
            .binary_search_by_key(&address, |(place, _)| *place)
        {
            return self.relocations.get(at).map(|(_, value)| *value);
        }
        let bytes = self.bytes(address, 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    /// The addresses of all pointers to `target`.
    pub(super) fn pointers_to(&self, target: u64) -> Vec<u64> {
        let filled = self.relocations.iter();
        let filled = filled.filter(|(_, value)| *value == target);
        let mut found: Vec<u64> = filled.map(|(place, _)| *place).collect();
        found.extend(self.words(|word| word == target));
        found
    }

    /// The addresses of all aligned words of the data that `wanted` accepts.
    pub(super) fn words(&self, wanted: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for segment in self.segments.iter().filter(|one| !one.is_code) {
            let mut inside = 0;
            while inside < segment.size {
                let length = (segment.size - inside).min(STEP as u64);
                let length = usize::try_from(length).unwrap_or(STEP);
                let Some(bytes) = self
                    .source
                    .read(segment.offset.saturating_add(inside), length)
                else {
                    break;
                };
                let (words, _) = bytes.as_chunks::<8>();
                let accepted = words.iter().enumerate();
                let accepted = accepted.filter(|(_, word)| wanted(u64::from_le_bytes(**word)));
                let base = segment.address.saturating_add(inside);
                found.extend(accepted.map(|(at, _)| base.saturating_add(8 * at as u64)));
                inside += length as u64;
            }
        }
        found
    }

    fn segment(&self, address: u64) -> Option<Segment> {
        let mut segments = self.segments.iter();
        let found = segments.find(|one| address >= one.address && address - one.address < one.size);
        found.copied()
    }
}
