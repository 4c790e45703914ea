//! Unwinds stacks that the kernel copied, with the tables of the files that a process has mapped.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fdguard_kernel::{CapturedStack, Goroutine, MappedFile, StackSlot};
use fdguard_proc::link::without_mark;
use fdguard_proc::maps::{regions, unescaped};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Unwinder as _};

use super::mount_path;
use super::return_place::{self, ReturnPlace};
use super::unwind_file::UnwindFile;
use crate::module_files::{ModuleFiles, file_and_name};
use crate::table::RawFrame;

/// The most frames of a stack that are followed.
const MOST_FRAMES: usize = 256;

/// The most files that are kept of what the kernel reports.
const MOST_REPORTED: usize = 4096;

/// The tables of files, by where they can be opened.
pub(super) type UnwindFiles = HashMap<(PathBuf, u64), Option<Arc<UnwindFile>>>;

/// One program in one process: what it has mapped.
pub(super) struct ProcessUnwinder {
    pid: u32,
    modules: Vec<MappedCode>,
    /// What the kernel has reported as mapped: used if the process is gone when it is needed.
    reported: Vec<MappedFile>,
    files: Arc<ModuleFiles>,
    unwinder: UnwinderX86_64<Arc<[u8]>>,
    cache: CacheX86_64,
}

/// Executable memory of a file.
#[derive(Clone, Debug)]
struct MappedCode {
    start: u64,
    end: u64,
    bias: u64,
    /// Under which name the file can be opened.
    file: PathBuf,
    tables: Arc<UnwindFile>,
}

impl PartialEq for MappedCode {
    fn eq(&self, other: &Self) -> bool {
        let place = |one: &Self| (one.start, one.end, one.bias);
        place(self) == place(other) && self.file == other.file
    }
}

/// A stack that was followed as far as possible.
#[derive(Debug, Default)]
pub(super) struct UnwoundStack {
    /// Innermost first.
    pub(super) frames: Vec<RawFrame>,
    /// What was read of the copied memory, by its distance from the stack pointer: as long as it is
    /// the same, so is the stack.
    pub(super) slots: Vec<StackSlot>,
    /// Whether nothing else determines the stack.
    pub(super) is_repeatable: bool,
    /// Whether some code was found in no file.
    pub(super) is_unknown: bool,
    /// Whether it leads to the program's own code only through the creators of its goroutine.
    pub(super) needs_creators: bool,
}

impl UnwoundStack {
    /// Whether no frame of it is in a known file.
    pub(super) fn is_nameless(&self) -> bool {
        let is_unknown = |one: &RawFrame| matches!(one, RawFrame::Unknown(_));
        self.frames.iter().all(is_unknown)
    }
}

impl ProcessUnwinder {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            modules: Vec::new(),
            reported: Vec::new(),
            files: Arc::new(ModuleFiles::new(pid)),
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
        }
    }

    /// The same for a forked child, which has mapped what its parent has.
    pub(super) fn for_child(&self, pid: u32) -> Self {
        Self {
            pid,
            modules: self.modules.clone(),
            reported: self.reported.clone(),
            files: Arc::clone(&self.files),
            unwinder: self.unwinder.clone(),
            cache: CacheX86_64::new(),
        }
    }

    /// Its files that cannot be read.
    pub(super) fn files(&self) -> &ModuleFiles {
        &self.files
    }

    /// Reads what is mapped now. A process that is gone keeps what it had.
    pub(super) fn load(&mut self, known: &mut UnwindFiles) {
        let Ok(maps) = std::fs::read(format!("/proc/{}/maps", self.pid)) else {
            return;
        };
        let code = regions(&maps).filter(|one| {
            one.rights.get(2) == Some(&b'x') && one.path.starts_with(b"/") && one.ino != 0
        });
        let mut modules = Vec::new();
        for region in code {
            let name = unescaped(without_mark(region.path));
            let path = PathBuf::from(OsString::from_vec(name));
            let file = self.files.locate(&path);
            let tables = known.entry((file.clone(), region.ino));
            let tables =
                tables.or_insert_with(|| UnwindFile::read(&file_and_name(&file).0).map(Arc::new));
            let bias = tables
                .as_ref()
                .and_then(|one| one.bias(region.start, region.offset));
            let (Some(tables), Some(bias)) = (tables, bias) else {
                continue;
            };
            let code = MappedCode {
                start: region.start,
                end: region.end,
                bias,
                file,
                tables: Arc::clone(tables),
            };
            if !self.modules.contains(&code) {
                self.add(&code);
            }
            modules.push(code);
        }
        if modules.is_empty() {
            return;
        }
        for gone in self.modules.iter().filter(|old| !modules.contains(old)) {
            if !modules.iter().any(|one| one.start == gone.start) {
                self.unwinder.remove_module(gone.start);
            }
        }
        self.modules = modules;
    }

    /// The kernel has reported a file.
    pub(super) fn report(&mut self, file: MappedFile) {
        // What was mapped there before is not any more.
        let overlaps = |one: &MappedFile| one.start < file.end && file.start < one.end;
        self.reported.retain(|one| !overlaps(one));
        if self.reported.len() < MOST_REPORTED {
            self.reported.push(file);
        }
    }

    /// Takes over what the kernel has reported, where nothing else is known.
    fn load_reported(&mut self, known: &mut UnwindFiles) {
        for reported in std::mem::take(&mut self.reported) {
            let has_it = self.module(reported.start).is_some();
            if let Some(path) = mount_path::locate(&reported).filter(|_| !has_it) {
                let tables = known.entry((path.clone(), reported.inode));
                let tables = tables.or_insert_with(|| UnwindFile::read(&path).map(Arc::new));
                let bias = tables
                    .as_ref()
                    .and_then(|tables| match reported.is_program {
                        true => tables.program_bias(reported.start),
                        false => tables.bias(reported.start, reported.offset),
                    });
                if let Some((tables, bias)) = tables.as_ref().zip(bias) {
                    let code = MappedCode {
                        start: reported.start,
                        end: reported.end,
                        bias,
                        file: path,
                        tables: Arc::clone(tables),
                    };
                    self.add(&code);
                    let at = self.modules.partition_point(|one| one.start < code.start);
                    self.modules.insert(at, code);
                }
            }
            self.reported.push(reported);
        }
    }

    fn add(&mut self, code: &MappedCode) {
        self.unwinder.remove_module(code.start);
        self.unwinder.add_module(framehop::Module::new(
            code.file.display().to_string(),
            code.start..code.end,
            code.bias.wrapping_add(code.tables.base()),
            code.tables.sections(),
        ));
    }

    fn module(&self, address: u64) -> Option<&MappedCode> {
        let after = self.modules.partition_point(|one| one.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        (address < module.end).then_some(module)
    }

    /// The frame of an address inside an instruction; `None` if no file is mapped there.
    fn frame(&self, address: u64) -> Option<RawFrame> {
        let module = self.module(address)?;
        Some(RawFrame::Native {
            module: module.file.clone(),
            offset: address.wrapping_sub(module.bias),
        })
    }

    /// Follows a stack. If some code is in no file that is known, the list of files is read again.
    pub(super) fn unwind(
        &mut self,
        stack: &CapturedStack,
        known: &mut UnwindFiles,
    ) -> UnwoundStack {
        let unwound = self.walk(stack);
        if !unwound.is_unknown {
            return unwound;
        }
        self.load(known);
        let unwound = self.walk(stack);
        if !unwound.is_unknown {
            return unwound;
        }
        self.load_reported(known);
        self.walk(stack)
    }

    fn walk(&mut self, stack: &CapturedStack) -> UnwoundStack {
        match stack.memory.is_empty() {
            true => {
                let mut unwound = self.name_frames(&stack.frames);
                self.add_creators(&mut unwound, stack);
                unwound
            }
            false => {
                let unwound = self.walk_memory(stack, stack.registers.bp);
                // The kernel recognises a stack without the frame pointer: that must not matter.
                let is_repeatable = !unwound.is_unknown
                    && self.walk_memory(stack, !stack.registers.bp).frames == unwound.frames;
                UnwoundStack {
                    is_repeatable,
                    ..unwound
                }
            }
        }
    }

    /// Adds who created the goroutine, and its creator: the kernel puts a zero before each.
    fn add_creators(&self, unwound: &mut UnwoundStack, stack: &CapturedStack) {
        // The first is the runtime's own.
        let Some(goroutine) = stack.goroutine.as_ref().filter(|it| it.id != 1) else {
            return;
        };
        for address in &creators(goroutine) {
            let frame = match address {
                0 => Some(RawFrame::Creator),
                address => self.frame(address.saturating_sub(1)),
            };
            unwound.is_unknown |= frame.is_none();
            let frame = frame.unwrap_or(RawFrame::Unknown(*address));
            unwound.frames.push(frame);
        }
    }

    /// Frames that the kernel has already followed: the first is the instruction, the others are
    /// return addresses.
    fn name_frames(&self, frames: &[u64]) -> UnwoundStack {
        let mut unwound = UnwoundStack::default();
        for (at, address) in frames.iter().copied().enumerate() {
            let lookup = if at == 0 {
                address
            } else {
                address.saturating_sub(1)
            };
            let frame = self.frame(lookup);
            unwound.is_unknown |= frame.is_none();
            unwound
                .frames
                .push(frame.unwrap_or(RawFrame::Unknown(address)));
        }
        unwound
    }

    fn walk_memory(&mut self, stack: &CapturedStack, bp: u64) -> UnwoundStack {
        let (sp, memory) = (stack.registers.sp, &stack.memory);
        let mut slots = Vec::new();
        let mut read = |address: u64| {
            let at = address.checked_sub(sp).ok_or(())?;
            let index = usize::try_from(at).map_err(|_beyond| ())?;
            let bytes = memory.get(index..index.saturating_add(8)).ok_or(())?;
            let word = u64::from_le_bytes(bytes.try_into().map_err(|_short| ())?);
            slots.push(StackSlot {
                offset: at,
                address: word,
            });
            Ok(word)
        };
        let registers = stack.registers;
        let mut state = UnwindRegsX86_64::new(registers.ip, registers.sp, bp);
        let mut address = FrameAddress::from_instruction_pointer(registers.ip);
        let mut unwound = UnwoundStack::default();
        while unwound.frames.len() < MOST_FRAMES {
            let code = address.address_for_lookup();
            let Some(frame) = self.frame(code) else {
                unwound.is_unknown = true;
                unwound.frames.push(RawFrame::Unknown(code));
                break;
            };
            unwound.frames.push(frame);
            let pc = address.address();
            let next = match self.has_tables(code) {
                true => self
                    .unwinder
                    .unwind_frame(address, &mut state, &mut self.cache, &mut read)
                    .ok()
                    .flatten(),
                false => self.leave_by_code(pc, &mut state, &mut read),
            };
            let next = next.and_then(FrameAddress::from_return_address);
            let Some(next) = next else {
                break;
            };
            address = next;
        }
        slots.sort_unstable_by_key(|slot| slot.offset);
        slots.dedup();
        unwound.slots = slots;
        unwound
    }
}

impl ProcessUnwinder {
    /// Whether the unwinder knows how to leave the function at this address. Go needs no tables.
    fn has_tables(&self, address: u64) -> bool {
        self.module(address).is_some_and(|module| {
            let tables = &module.tables;
            tables.covers(address.wrapping_sub(module.bias)) || tables.is_go()
        })
    }

    /// Leaves a function without tables as its code does; returns the return address.
    fn leave_by_code(
        &self,
        address: u64,
        state: &mut UnwindRegsX86_64,
        read: &mut dyn FnMut(u64) -> Result<u64, ()>,
    ) -> Option<u64> {
        // Of a call at the end of a function, the return address is behind it.
        let module = self.module(address.wrapping_sub(1))?;
        let (sp, bp) = (state.sp(), state.bp());
        let distance = bp.wrapping_sub(sp).cast_signed();
        let own = address.wrapping_sub(module.bias);
        let words = std::cell::RefCell::new(read);
        let word = |offset: u64| (words.borrow_mut())(sp.wrapping_add(offset)).ok();
        let is_plausible = |place: &ReturnPlace| {
            word(place.offset).is_some_and(|address| self.follows_call(address))
        };
        let code = module.tables.code()?;
        let place = return_place::find(code, own, distance, is_plausible)?;
        let next = word(place.offset)?;
        let bp = match place.frame_pointer {
            Some(offset) => word(offset)?,
            None => bp,
        };
        let above = sp.wrapping_add(place.offset).wrapping_add(8);
        *state = UnwindRegsX86_64::new(next, above, bp);
        Some(next)
    }

    /// Whether the code before an address calls something.
    fn follows_call(&self, address: u64) -> bool {
        let before = self.module(address.wrapping_sub(1)).and_then(|module| {
            let (code, start) = module.tables.code()?;
            let own = address.wrapping_sub(module.bias);
            let end = usize::try_from(own.checked_sub(start)?).ok()?;
            code.get(end.saturating_sub(8)..end)
        });
        before.is_some_and(return_place::follows_call)
    }
}

/// The addresses of the creators, with a zero before each. They begin with the `go` statement,
/// whether the creation was seen or not: what the runtime did before it stopped is left out.
fn creators(goroutine: &Goroutine) -> Vec<u64> {
    let statement = goroutine.created_at;
    let mut creators = goroutine.creator.clone();
    if creators.is_empty() && statement != 0 {
        return vec![0, statement];
    }
    let nearest = creators.iter().skip(1).take_while(|address| **address != 0);
    if let Some(before) = nearest.copied().position(|address| address == statement) {
        creators.drain(1..=before);
    }
    creators
}

impl std::fmt::Debug for ProcessUnwinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.modules.iter().map(|one| Path::new(&one.file));
        f.debug_struct("ProcessUnwinder")
            .field("pid", &self.pid)
            .field("modules", &names.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use fdguard_kernel::Goroutine;

    use super::creators;

    #[test]
    fn creators_begin_with_the_go_statement() {
        let of = |creator: &[u64]| {
            creators(&Goroutine {
                id: 7,
                created_at: 5,
                creator: creator.to_vec(),
            })
        };
        assert_eq!(of(&[]), [0, 5]);
        assert_eq!(of(&[0, 4, 5, 6, 0, 4, 9]), [0, 5, 6, 0, 4, 9]);
        assert_eq!(of(&[0, 5, 6]), [0, 5, 6]);
        assert_eq!(of(&[0, 4, 6, 0, 5]), [0, 4, 6, 0, 5]);
    }
}
