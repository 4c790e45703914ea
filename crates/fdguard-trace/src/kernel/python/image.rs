//! Interpreters in files: a program or a library that contains `CPython`, recognised by its
//! symbols.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fdguard_kernel::{PythonLayout, PythonLayoutOffsets};
use fdguard_wire::python::{DEBUG_SPAN, PythonOffsets, PythonRefusal, PythonSelfReport};
use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD, ProgramHeader64};
use object::read::elf::{ElfFile64, ElfSymbolIterator, ProgramHeader as _};
use object::read::{Object as _, ObjectSymbol as _, ReadCache, ReadRef};

use super::library;

/// Segments are mapped by whole pages.
const PAGE: u64 = 4096;

/// An interpreter in a file. All addresses are the file's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PythonImage {
    pub(super) layout: PythonLayout,
    pub(super) offsets: PythonOffsets,
    pub(super) unicode_type: u64,
    pub(super) bytes_type: u64,
    /// The types of [`PLAIN`], 0 for one that is missing.
    pub(super) plain: [u64; PLAIN.len()],
}

/// Types that a walk of the heap must know by their address: dict, tuple and int; then the leaves.
pub(super) const PLAIN: [&[u8]; 7] = [
    b"PyDict_Type",
    b"PyTuple_Type",
    b"PyLong_Type",
    b"PyFloat_Type",
    b"PyBool_Type",
    b"_PyNone_Type",
    b"PyComplex_Type",
];

/// A file with an interpreter, for the kernel to recognise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PythonFile {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// With the file's own addresses.
    pub(crate) layout: PythonLayout,
}

/// A file that does not change while it has these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

/// Every file that was examined.
#[derive(Debug, Default)]
pub(super) struct PythonImages {
    known: HashMap<FileKey, Result<PythonImage, PythonRefusal>>,
}

impl PythonImages {
    /// The interpreter in an open file.
    pub(super) fn read(&mut self, file: File) -> Result<PythonImage, PythonRefusal> {
        let metadata = file.metadata().map_err(|_gone| PythonRefusal::NoPython)?;
        let key = FileKey::new(&metadata);
        *self
            .known
            .entry(key)
            .or_insert_with(|| PythonImage::read(&ReadCache::new(file)))
    }

    /// The interpreter that a program contains or is linked with, and the device and the inode
    /// number of its file.
    pub(super) fn find_for_program(&mut self, path: &Path) -> Option<PythonFile> {
        let program = File::open(path).ok()?;
        let linked = library::linked(&program, path);
        let files = std::iter::once(path.to_owned()).chain(linked);
        files.into_iter().find_map(|path: PathBuf| {
            let file = File::open(path).ok()?;
            let metadata = file.metadata().ok()?;
            let image = self.read(file).ok()?;
            Some(PythonFile {
                device: metadata.dev(),
                inode: metadata.ino(),
                layout: image.layout,
            })
        })
    }
}

impl FileKey {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl PythonImage {
    pub(super) fn read<'d, R: ReadRef<'d>>(file: R) -> Result<Self, PythonRefusal> {
        let elf = ElfFile64::<Endianness, R>::parse(file).map_err(|_no| PythonRefusal::NoPython)?;
        if !elf.is_little_endian() {
            return Err(PythonRefusal::Machine);
        }
        let symbols = Symbols::read(&elf);
        let runtime = symbols.runtime.ok_or(PythonRefusal::NoPython)?;
        let image = ImageBytes {
            segments: elf.elf_program_headers(),
            file,
        };
        let offsets = symbols.version(&image)?;
        let needed = |symbol: Option<u64>| symbol.ok_or(PythonRefusal::SymbolMissing);
        let code_type = needed(symbols.code_type)?;
        let unicode_type = needed(symbols.unicode_type)?;
        let bytes_type = needed(symbols.bytes_type)?;
        let frame_type = needed(symbols.frame_type)?;
        for (kind, size) in [
            (code_type, offsets.code_size),
            (unicode_type, offsets.unicode_size),
            (bytes_type, offsets.bytes_size),
            (frame_type, offsets.frame_size),
        ] {
            let found = image.word(kind.saturating_add(offsets.type_basic_size.into()));
            if found != Some(size.into()) {
                return Err(PythonRefusal::LayoutDiffers);
            }
        }
        let offsets = image.reported(offsets, runtime, &symbols)?;
        let segment = image.code_segment().ok_or(PythonRefusal::SymbolMissing)?;
        let layout = PythonLayout {
            runtime,
            code_type,
            segment_address: segment.0,
            segment_offset: segment.1,
            offsets: layout_offsets(&offsets),
        };
        Ok(Self {
            layout,
            offsets,
            unicode_type,
            bytes_type,
            plain: symbols.plain,
        })
    }
}

/// The addresses of what is looked for.
#[derive(Debug, Default)]
struct Symbols {
    runtime: Option<u64>,
    code_type: Option<u64>,
    unicode_type: Option<u64>,
    bytes_type: Option<u64>,
    frame_type: Option<u64>,
    /// Since 3.11.
    version: Option<u64>,
    /// Functions that 3.10 and 3.9 added.
    added_in_3_10: Option<u64>,
    added_in_3_9: Option<u64>,
    plain: [u64; PLAIN.len()],
}

impl Symbols {
    fn read<'d, R: ReadRef<'d>>(elf: &ElfFile64<'d, Endianness, R>) -> Self {
        let mut found = Self::default();
        found.add(elf.dynamic_symbols());
        if found.runtime.is_none() {
            found.add(elf.symbols());
        }
        found
    }

    fn add<'d, R: ReadRef<'d>>(
        &mut self,
        symbols: ElfSymbolIterator<'d, '_, FileHeader64<Endianness>, R>,
    ) {
        for symbol in symbols {
            let place = match symbol.name_bytes() {
                Ok(b"_PyRuntime") => &mut self.runtime,
                Ok(b"PyCode_Type") => &mut self.code_type,
                Ok(b"PyUnicode_Type") => &mut self.unicode_type,
                Ok(b"PyBytes_Type") => &mut self.bytes_type,
                Ok(b"PyFrame_Type") => &mut self.frame_type,
                Ok(b"Py_Version") => &mut self.version,
                Ok(b"PyModule_AddObjectRef") => &mut self.added_in_3_10,
                Ok(b"PyFrame_GetBack") => &mut self.added_in_3_9,
                Ok(name) => {
                    self.add_plain(name, (symbol.address(), symbol.is_definition()));
                    continue;
                }
                Err(_) => continue,
            };
            // A program that is linked with the library refers to its symbols.
            if symbol.is_definition() {
                *place = Some(symbol.address());
            }
        }
    }

    fn add_plain(&mut self, name: &[u8], (address, is_defined): (u64, bool)) {
        let place = PLAIN.iter().position(|plain| *plain == name);
        let place = place.and_then(|place| self.plain.get_mut(place));
        if let Some(place) = place.filter(|_| is_defined) {
            *place = address;
        }
    }

    /// The row of the version. Before 3.11 there is no number, but functions that the version
    /// added; the sizes of the types confirm it.
    fn version<'d, R: ReadRef<'d>>(
        &self,
        image: &ImageBytes<'_, R>,
    ) -> Result<PythonOffsets, PythonRefusal> {
        if let Some(address) = self.version {
            let version = image.word(address).ok_or(PythonRefusal::SymbolMissing)?;
            let version = u32::try_from(version);
            return PythonOffsets::of_version(version.map_err(|_no| PythonRefusal::TooNew)?);
        }
        let minor = match (self.added_in_3_10, self.added_in_3_9) {
            (Some(_), _) => 10,
            (None, Some(_)) => 9,
            (None, None) => return Err(PythonRefusal::TooOld),
        };
        PythonOffsets::of(minor).ok_or(PythonRefusal::TooOld)
    }
}

/// The content of a file by addresses.
struct ImageBytes<'f, R> {
    segments: &'f [ProgramHeader64<Endianness>],
    file: R,
}

impl<'d, R: ReadRef<'d>> ImageBytes<'_, R> {
    fn bytes(&self, address: u64, length: u64) -> Option<&'d [u8]> {
        let endian = Endianness::Little;
        self.segments.iter().find_map(|segment| {
            let inside = address.checked_sub(segment.p_vaddr(endian))?;
            let end = inside.checked_add(length)?;
            if segment.p_type(endian) != PT_LOAD || end > segment.p_filesz(endian) {
                return None;
            }
            let offset = segment.p_offset(endian).checked_add(inside)?;
            self.file.read_bytes_at(offset, length).ok()
        })
    }

    fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(address, 8)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// The address and the offset of the code, by whole pages.
    fn code_segment(&self) -> Option<(u64, u64)> {
        let endian = Endianness::Little;
        let is_code = |segment: &&ProgramHeader64<Endianness>| {
            segment.p_type(endian) == PT_LOAD && segment.p_flags(endian).contains(PF_X)
        };
        let segment = self.segments.iter().find(is_code)?;
        let whole = |address: u64| address / PAGE * PAGE;
        Some((
            whole(segment.p_vaddr(endian)),
            whole(segment.p_offset(endian)),
        ))
    }

    /// The offsets as the interpreter itself reports them, from 3.13 on.
    fn reported(
        &self,
        offsets: PythonOffsets,
        runtime: u64,
        symbols: &Symbols,
    ) -> Result<PythonOffsets, PythonRefusal> {
        if !offsets.has_debug_offsets() {
            return Ok(offsets);
        }
        let report = self
            .bytes(runtime, DEBUG_SPAN as u64)
            .and_then(<[u8]>::first_chunk)
            .and_then(PythonSelfReport::read)
            .ok_or(PythonRefusal::LayoutDiffers)?;
        if Some(report.version) != symbols.version.and_then(|address| self.word(address)) {
            return Err(PythonRefusal::LayoutDiffers);
        }
        if report.is_free_threaded {
            return Err(PythonRefusal::FreeThreaded);
        }
        let agreed = offsets.as_reported(&report);
        agreed.ok_or(PythonRefusal::LayoutDiffers)
    }
}

/// What the programs need of the offsets.
fn layout_offsets(at: &PythonOffsets) -> PythonLayoutOffsets {
    PythonLayoutOffsets {
        minor: at.minor,
        runtime_finalizing: at.runtime_finalizing,
        runtime_thread_key: at.runtime_thread_key,
        thread_frame: at.thread_frame,
        thread_id: at.thread_id,
        cframe_current: at.cframe_current,
        frame_span: u16::try_from(at.frame_span()).unwrap_or(0),
        frame_code: at.frame_code,
        frame_back: at.frame_back,
        frame_instruction: at.frame_instruction,
        frame_owner: at.frame_owner,
        object_type: at.object_type,
        code_size: at.code_size,
        code_filename: at.code_filename,
        code_name: at.code_name,
        code_first_line: at.code_first_line,
        code_first_traceable: at.code_first_traceable,
        code_start: at.code_start,
        code_lines: at.code_lines,
        unicode_length: at.unicode_length,
        unicode_state: at.unicode_state,
        unicode_ascii: at.unicode_ascii,
        unicode_compact: at.unicode_compact,
        state_kind_shift: u16::try_from(at.state_kind.trailing_zeros()).unwrap_or(0),
        state_is_compact: at.state_is_compact,
        state_is_ascii: at.state_is_ascii,
        bytes_length: at.bytes_length,
        bytes_start: at.bytes_start,
    }
}
