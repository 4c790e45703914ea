//! The thread that unwinds copied stacks, so that reading the kernel's events never waits for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use fdguard_core::TraceKey;
use fdguard_kernel::{CapturedCode, CapturedStack, Goroutine, MappedFile, StackMode, StackSlot};
use fdguard_wire::python::PythonRefusal;

use super::go_creators;
use super::python::{self, FoundPython, PythonProcesses};
use super::records::ProcessChange;
use super::stack_mode::StackModes;
use super::stack_store::StackStore;
use super::unwinder::{ProcessUnwinder, UnwindFiles, UnwoundStack};
use crate::go::{GoProgram, GoPrograms};
use crate::symbol::Symbols;

/// What there is to do, in the order of the events.
#[derive(Debug)]
pub(super) enum UnwindTask {
    /// Something happened to a process.
    Change(ProcessChange),
    /// A program has mapped a file.
    Mapped(TraceKey, Box<MappedFile>),
    /// A stack of this program.
    Stack(TraceKey, Box<CapturedStack>),
    /// A code object that Python frames of later stacks refer to.
    Code(Box<CapturedCode>),
    /// Somebody waits until everything before this is done: then it is dropped.
    Reached(Sender<()>),
}

/// What the kernel should know.
#[derive(Clone, Copy, Debug)]
pub(super) enum KernelLesson<'a> {
    /// It can recognise the stack with this number by what it finds in the memory above the stack
    /// pointer.
    Stack(u32, &'a [StackSlot]),
    /// The stacks of a process are to be taken this way.
    Mode(u32, StackMode),
    /// It runs this Go program.
    Go(u32, &'a GoProgram),
    /// A process runs this Python.
    Python(u32, &'a FoundPython),
    /// A process opens on goroutines whose creators have to be known.
    Creators(u32),
}

/// What could not be found.
#[derive(Debug, Default)]
pub(super) struct UnwindFailures {
    /// Stacks of programs that were gone before their files could be looked up.
    pub(super) unknown: u64,
    /// Stacks that were not unwound when the trace ended.
    pub(super) given_up: u64,
    /// Files that are mapped and cannot be opened, with a process that has them.
    pub(super) unreadable: BTreeSet<(PathBuf, u32)>,
    /// Stacks of goroutines whose creation was not seen.
    pub(super) uncreated: u64,
    /// Go programs whose goroutines cannot be seen, with the reason.
    pub(super) unprobed: BTreeSet<String>,
    /// Python frames whose code was gone before it could be read.
    pub(super) python_gone: u64,
    /// Processes whose Python frames cannot be read.
    pub(super) python_refused: BTreeMap<u32, PythonRefusal>,
}

/// The thread.
#[derive(Debug)]
pub(super) struct UnwindThread {
    tasks: Option<Sender<UnwindTask>>,
    thread: Option<JoinHandle<()>>,
    /// What is left is not unwound any more.
    is_late: Arc<AtomicBool>,
}

impl UnwindThread {
    /// Starts it. `learn` is called with what the kernel should know.
    pub(super) fn start(
        stacks: Arc<StackStore>,
        failures: Arc<Mutex<UnwindFailures>>,
        learn: impl Fn(KernelLesson<'_>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (tasks, received) = mpsc::channel();
        let is_late = Arc::new(AtomicBool::new(false));
        let given_up = Arc::clone(&is_late);
        let thread = std::thread::Builder::new()
            .name("fdguard-unwind".to_owned())
            .spawn(move || work(&received, &stacks, (&failures, &given_up), &learn))?;
        Ok(Self {
            tasks: Some(tasks),
            thread: Some(thread),
            is_late,
        })
    }

    /// Gives up what is not unwound yet: it is counted, without lines.
    pub(super) fn give_up(&self) {
        self.is_late.store(true, Ordering::Release);
    }

    pub(super) fn send(&self, task: UnwindTask) {
        if let Some(tasks) = &self.tasks {
            // It ends only when this is dropped.
            drop(tasks.send(task));
        }
    }
}

impl Drop for UnwindThread {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            // If it panicked, the panic was already shown.
            drop(thread.join());
        }
    }
}

fn work(
    tasks: &Receiver<UnwindTask>,
    stacks: &StackStore,
    (failures, is_late): (&Mutex<UnwindFailures>, &AtomicBool),
    learn: &dyn Fn(KernelLesson<'_>),
) {
    let mut files = UnwindFiles::new();
    let mut modes = StackModes::default();
    let mut go = GoPrograms::default();
    let mut pythons = PythonProcesses::default();
    let mut symbols = Symbols::new();
    let mut programs: HashMap<TraceKey, ProcessUnwinder> = HashMap::new();
    for task in tasks {
        match task {
            UnwindTask::Stack(_, stack) if is_late.load(Ordering::Acquire) => {
                let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                failures.given_up += 1;
                stacks.insert(stack.number, Vec::new());
            }
            _ if is_late.load(Ordering::Acquire) => {}
            UnwindTask::Reached(waiting) => drop(waiting),
            UnwindTask::Change(ProcessChange::Forked { parent, child }) => {
                if let Some(program) = programs.get(&parent) {
                    programs.insert(child, program.for_child(child.pid));
                }
                pythons.fork(parent.pid, child.pid);
            }
            UnwindTask::Change(ProcessChange::Found(key) | ProcessChange::Executed(key)) => {
                let mut program = ProcessUnwinder::new(key.pid);
                program.load(&mut files);
                programs.insert(key, program);
                if let Some(mode) = modes.mode(key.pid) {
                    learn(KernelLesson::Mode(key.pid, mode));
                }
                if let Some(program) = go.of_process(key.pid) {
                    learn(KernelLesson::Go(key.pid, &program));
                }
                find_python(key.pid, &mut pythons, failures, learn);
            }
            UnwindTask::Change(ProcessChange::Over(key)) => {
                programs.remove(&key);
                pythons.forget(key.pid);
            }
            UnwindTask::Code(code) => pythons.add_code(&code),
            UnwindTask::Stack(_, stack) if !stack.language.is_empty() => {
                let frames = pythons.name(stack.pid, &stack.language);
                lock(failures).python_gone = pythons.gone();
                stacks.insert(stack.number, frames);
            }
            UnwindTask::Mapped(key, file) => {
                let program = program_of(&mut programs, key);
                let is_python = python::is_library(&file.path);
                program.report(*file);
                if is_python {
                    find_python(key.pid, &mut pythons, failures, learn);
                }
            }
            UnwindTask::Stack(key, stack) => {
                let program = program_of(&mut programs, key);
                let unwound = program.unwind(&stack, &mut files);
                let unwound = judge(unwound, &stack, &mut symbols);
                hand_out(unwound, &stack, (program, failures), stacks, learn);
            }
        }
    }
}

/// What a program has mapped.
fn program_of(
    programs: &mut HashMap<TraceKey, ProcessUnwinder>,
    key: TraceKey,
) -> &mut ProcessUnwinder {
    let program = programs.entry(key);
    program.or_insert_with(|| ProcessUnwinder::new(key.pid))
}

/// Recognises the Python that a process runs, if it does.
fn find_python(
    pid: u32,
    pythons: &mut PythonProcesses,
    failures: &Mutex<UnwindFailures>,
    learn: &dyn Fn(KernelLesson<'_>),
) {
    match pythons.find(pid) {
        Ok(found) => {
            lock(failures).python_refused.remove(&pid);
            learn(KernelLesson::Python(pid, &found));
        }
        Err(PythonRefusal::NoPython) => {}
        Err(refusal) => {
            lock(failures).python_refused.insert(pid, refusal);
        }
    }
}

fn lock(failures: &Mutex<UnwindFailures>) -> MutexGuard<'_, UnwindFailures> {
    failures.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds out whether only the creators of its goroutine lead to the program's own code. Otherwise
/// the stack ends with the `go` statement: it is the same whether creators are seen at the time or
/// not.
fn judge(mut unwound: UnwoundStack, stack: &CapturedStack, symbols: &mut Symbols) -> UnwoundStack {
    unwound.needs_creators = go_creators::needs_creators(stack, &unwound.frames, symbols);
    if !unwound.needs_creators {
        let length = go_creators::first_statement(&unwound.frames).len();
        unwound.frames.truncate(length);
    }
    unwound
}

/// Gives a stack to those who wait for it, notes what is missing, and configures the kernel for
/// what follows.
fn hand_out(
    unwound: UnwoundStack,
    stack: &CapturedStack,
    (program, failures): (&ProcessUnwinder, &Mutex<UnwindFailures>),
    stacks: &StackStore,
    learn: &dyn Fn(KernelLesson<'_>),
) {
    note_failures(program, &unwound, stack, failures);
    if unwound.needs_creators {
        stacks.note_creators_needed(stack.number);
        learn(KernelLesson::Creators(stack.pid));
    }
    if unwound.is_repeatable {
        learn(KernelLesson::Stack(stack.number, &unwound.slots));
    }
    stacks.insert(stack.number, unwound.frames);
}

fn note_failures(
    program: &ProcessUnwinder,
    unwound: &UnwoundStack,
    stack: &CapturedStack,
    failures: &Mutex<UnwindFailures>,
) {
    let unreadable = program.files().unreadable();
    let has_none = |it: &Goroutine| it.creator.is_empty();
    let is_uncreated = unwound.needs_creators && stack.goroutine.as_ref().is_some_and(has_none);
    if unwound.is_unknown || !unreadable.is_empty() || is_uncreated {
        let mut failures = lock(failures);
        failures.unknown += u64::from(unwound.is_nameless());
        failures.uncreated += u64::from(is_uncreated);
        let unreadable = unreadable.into_iter().map(|path| (path, stack.pid));
        failures.unreadable.extend(unreadable);
    }
}
