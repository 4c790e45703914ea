//! Follows the stack of a stopped thread, with unwind tables that were read before the stop.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Unwinder as _};
use rustc_hash::FxHashMap;

use crate::unwind_index::is_usable_index;
use crate::x86_64::image::{Functions, Image};
use crate::x86_64::judge::{Frame, Place, StackEnd, is_allocator, is_allocator_file};
use crate::x86_64::maps::{Module, Region, modules, regions};
use crate::x86_64::memory::{Memory, number};
use crate::x86_64::ptrace::Registers;

/// What is read of the stack at a time.
const CHUNK: usize = 64 * 1024;
/// A frame further away is on another stack.
const MOST_STACK: u64 = 64 << 20;
/// More than the deepest recursion that a thread can have with usual stacks and frames.
const MOST_FRAMES: usize = 20_000;

/// The modules of a process with the tables that were needed so far.
pub(crate) struct Tables {
    pid: u32,
    /// The start of the dynamic loader and of the C library.
    loader: u64,
    libc: u64,
    regions: Vec<Region>,
    modules: Vec<Module>,
    loaded: FxHashMap<u64, LoadedModule>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
}

struct LoadedModule {
    place: Place,
    functions: Functions,
}

/// A stack was followed, or tables are missing.
pub(crate) enum Walk {
    Whole {
        frames: Vec<Frame>,
        end: StackEnd,
    },
    /// The tables of this module must be read first, which is not done during a stop.
    Missing(Module),
}

impl Tables {
    pub(crate) fn new(pid: u32, loader: u64, libc: u64) -> Self {
        Self {
            pid,
            loader,
            libc,
            regions: Vec::new(),
            modules: Vec::new(),
            loaded: FxHashMap::default(),
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// Reads which modules there are now; tables of modules that are gone are dropped.
    pub(crate) fn refresh(&mut self) -> io::Result<()> {
        let maps = std::fs::read(format!("/proc/{}/maps", self.pid))?;
        self.regions = regions(&maps);
        let modules = modules(&self.regions);
        for gone in self.modules.iter().filter(|old| !modules.contains(old)) {
            self.loaded.remove(&gone.start);
            self.unwinder.remove_module(gone.start);
        }
        self.modules = modules;
        Ok(())
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    pub(crate) fn modules(&self) -> &[Module] {
        &self.modules
    }

    fn module(&self, address: u64) -> Option<&Module> {
        let after = self.modules.partition_point(|one| one.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        module.contains(address).then_some(module)
    }

    fn is_executable(&self, address: u64) -> bool {
        let after = self.regions.partition_point(|one| one.start <= address);
        let region = after.checked_sub(1).and_then(|at| self.regions.get(at));
        region.is_some_and(|one| one.contains(address) && one.is_executable())
    }

    /// Follows a stack. The thread is stopped meanwhile.
    pub(crate) fn walk(&mut self, memory: &Memory, registers: &Registers) -> Walk {
        let mut stack = StackCopy::new(memory, registers.rsp);
        let mut read = |address| stack.word(address).ok_or(());
        let mut state = UnwindRegsX86_64::new(registers.rip, registers.rsp, registers.rbp);
        let mut address = FrameAddress::from_instruction_pointer(registers.rip);
        let mut frames = Vec::new();
        let end = loop {
            let code = address.address_for_lookup();
            if !self.is_executable(code) {
                break StackEnd::Broken;
            }
            let Some(module) = self.module(code) else {
                frames.push(Frame {
                    place: Place::Other,
                    names: Vec::new(),
                });
                break StackEnd::Generated;
            };
            let Some(loaded) = self.loaded.get(&module.start) else {
                return Walk::Missing(module.clone());
            };
            frames.push(Frame {
                place: loaded.place.clone(),
                names: loaded.functions.names_at(code).to_vec(),
            });
            if frames.len() > MOST_FRAMES {
                break StackEnd::Deep;
            }
            let next = self
                .unwinder
                .unwind_frame(address, &mut state, &mut self.cache, &mut read);
            match next {
                Ok(None) => break StackEnd::Root,
                Ok(Some(caller)) => match FrameAddress::from_return_address(caller) {
                    Some(caller) => address = caller,
                    None => break StackEnd::Root,
                },
                Err(_unreadable) => break StackEnd::Broken,
            }
        };
        Walk::Whole { frames, end }
    }

    /// Reads the tables that the stack of a thread needs. It runs meanwhile: a stack that has
    /// changed only means that they may not be enough.
    pub(crate) fn warm(&mut self, memory: &Memory, registers: &Registers) {
        while let Walk::Missing(module) = self.walk(memory, registers) {
            self.load(memory, &module);
        }
    }

    /// Reads the tables of a module.
    fn load(&mut self, memory: &Memory, module: &Module) {
        let image = Image::read(memory, module.start).ok();
        let functions = image
            .as_ref()
            .and_then(|image| image.functions(memory).ok());
        let functions = functions.unwrap_or_default();
        let place = self.place(module, &functions);
        // Elsewhere only the names of allocators matter.
        let functions = if place == Place::Libc {
            functions
        } else {
            functions.only(is_allocator)
        };
        let loaded = LoadedModule { place, functions };
        self.loaded.insert(module.start, loaded);
        let of_module = |region: &&Region| {
            region.path == module.path && module.contains(region.start) && !region.is_writable()
        };
        let source = TableSource {
            memory,
            file: mapped_file(self.pid, module),
            regions: self.regions.iter().filter(of_module).collect(),
        };
        let tables = image.and_then(|image| UnwindTable::read(&source, &image));
        let section = tables.map(|tables| tables.sections(module));
        let section = section.unwrap_or_default();
        self.unwinder.add_module(framehop::Module::new(
            module.shown_name(),
            module.start..module.end,
            module.start,
            section,
        ));
    }

    fn place(&self, module: &Module, functions: &Functions) -> Place {
        if module.start == self.libc {
            Place::Libc
        } else if module.start == self.loader {
            Place::Loader
        } else if module.path == b"[vdso]" {
            Place::Vdso
        } else if is_allocator_file(module.name()) {
            Place::Allocator(module.shown_name())
        } else if functions.address(b"malloc").is_some() {
            Place::OwnAllocator(module.shown_name())
        } else {
            Place::Other
        }
    }
}

/// The part of a module that tells how to leave its functions.
struct UnwindTable {
    header_at: u64,
    header: Arc<[u8]>,
    frames_at: u64,
    frames: Arc<[u8]>,
}

impl UnwindTable {
    fn read(source: &TableSource<'_>, image: &Image) -> Option<Self> {
        let range = image.eh_frame_hdr.clone()?;
        let size = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        let header = source.bytes(range.start, size)?;
        let frames_at = frames_address(&header, range.start)?;
        let segment = image.segment(frames_at)?;
        let size = usize::try_from(segment.end - frames_at).ok()?;
        let frames = source.bytes(frames_at, size)?;
        Some(Self {
            header_at: range.start,
            header: header.into(),
            frames_at,
            frames: frames.into(),
        })
    }

    fn sections(self, module: &Module) -> ExplicitModuleSectionInfo<Arc<[u8]>> {
        let is_usable = is_usable_index(&self.header, self.header_at);
        // The file's addresses are taken to begin where the module begins.
        let range = |at: u64, bytes: &[u8]| Some(at..at + bytes.len() as u64);
        ExplicitModuleSectionInfo {
            base_svma: module.start,
            text_svma: Some(module.start..module.end),
            eh_frame_hdr_svma: range(self.header_at, &self.header),
            eh_frame_svma: range(self.frames_at, &self.frames),
            eh_frame_hdr: is_usable.then_some(self.header),
            eh_frame: Some(self.frames),
            ..Default::default()
        }
    }
}

/// The address of the table that an index belongs to.
fn frames_address(header: &[u8], at: u64) -> Option<u64> {
    const RELATIVE_TO_PLACE_4_BYTES: u8 = 0x1b;
    let encoding = *header.get(1)?;
    #[expect(clippy::cast_possible_truncation, reason = "four bytes were read")]
    let offset = number(header, 4, 4) as u32;
    (encoding == RELATIVE_TO_PLACE_4_BYTES && header.len() >= 12)
        .then(|| (at + 4).wrapping_add_signed(i64::from(offset.cast_signed())))
}

/// Tables are read from the file if it is the one that is mapped: reading the memory of the process
/// would make pages resident that it does not use.
struct TableSource<'a> {
    memory: &'a Memory,
    file: Option<File>,
    regions: Vec<&'a Region>,
}

impl TableSource<'_> {
    fn bytes(&self, address: u64, size: usize) -> Option<Vec<u8>> {
        let from_file = self.file_bytes(address, size);
        from_file.or_else(|| self.memory.bytes(address, size).ok())
    }

    fn file_bytes(&self, address: u64, size: usize) -> Option<Vec<u8>> {
        let file = self.file.as_ref()?;
        let end = address.checked_add(size as u64)?;
        let mut regions = self.regions.iter();
        let region = regions.find(|region| region.contains(address) && end <= region.end)?;
        let mut bytes = vec![0; size];
        let offset = region.offset + (address - region.start);
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }
}

/// The file of a module, if it can be opened and is the same one.
fn mapped_file(pid: u32, module: &Module) -> Option<File> {
    use std::os::unix::ffi::OsStrExt as _;
    let path = std::ffi::OsStr::from_bytes(module.path.strip_prefix(b"/")?);
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let file = File::open(root.join(path)).ok()?;
    let found = file.metadata().ok()?;
    (found.is_file() && found.ino() == module.inode).then_some(file)
}

/// Words of a stack, copied in large pieces from the stack pointer upwards.
struct StackCopy<'a> {
    memory: &'a Memory,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> StackCopy<'a> {
    fn new(memory: &'a Memory, pointer: u64) -> Self {
        Self {
            memory,
            // A function without calls may keep registers below the pointer.
            start: pointer.saturating_sub(128) & !7,
            bytes: Vec::new(),
        }
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        let Some(at) = address
            .checked_sub(self.start)
            .filter(|at| *at < MOST_STACK)
        else {
            return self.memory.word(address).ok();
        };
        let at = usize::try_from(at).ok()?;
        while self.bytes.len() < at + 8 {
            let next = self.start + self.bytes.len() as u64;
            let more = self.memory.bytes_up_to(next, CHUNK);
            if more.is_empty() {
                return None;
            }
            self.bytes.extend(more);
        }
        Some(number(&self.bytes, at, 8))
    }
}
