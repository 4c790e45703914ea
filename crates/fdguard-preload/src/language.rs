//! Frames of languages with a runtime, appended to the native frames of a stack.

#![expect(
    unsafe_code,
    reason = "keeps the one interpreter of the process in a static, and asks the loader for it"
)]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use fdguard_wire::python::PythonRefusal;
use fdguard_wire::{FrameRecord, RuntimeLanguage, TableMapping};

use crate::creator::{Api, Junction, Search};
use crate::modules::{self, Module};
use crate::python::{PythonWalk, RawFrame, Runtime};
use crate::start::GROUND;
use crate::unwind::{self, Extent, Native, Trace};
use crate::walkers::{self, Walk};
use crate::{java, loader};

/// The most frames of one stack; outer frames are cut.
const DEPTH: usize = 64;
/// Bytes for the text of a new stack. They are on the caller's stack; threads with a small stack
/// are made for little work.
const ROOM: usize = 8 * 1024;
/// Bytes before the frames of a record, and before the text of each frame.
const STACK_HEAD: usize = 4;
const FRAME_HEAD: usize = 13;

const UNKNOWN: u32 = 0;
const SEARCHING: u32 = 1;
const FOUND: u32 = 2;
const ABSENT: u32 = 3;

struct Interpreter {
    runtime: Runtime,
    /// The function that runs Python's instructions.
    eval: Extent,
    /// The functions needed to follow creators; `None` if one is missing.
    api: Option<Api>,
}

/// The interpreter of the process.
struct DetectedRuntime {
    state: AtomicU32,
    interpreter: UnsafeCell<MaybeUninit<Interpreter>>,
}

// SAFETY: the cell is written once, by the thread that moved the state from UNKNOWN to SEARCHING,
// and read only after FOUND.
unsafe impl Sync for DetectedRuntime {}

static PYTHON: DetectedRuntime = DetectedRuntime {
    state: AtomicU32::new(UNKNOWN),
    interpreter: UnsafeCell::new(MaybeUninit::uninit()),
};

/// Looks for an interpreter among the loaded modules. Not from a hook: the loader may lock.
pub(crate) fn find() {
    find_runtimes(|name| loader::dlsym(core::ptr::null_mut(), name).cast_const());
}

/// The start addresses of modules that were already searched for an interpreter.
static ASKED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
/// The start address of the module that brought the interpreter after the program's start; 0 if
/// none did.
static BROUGHT: AtomicUsize = AtomicUsize::new(0);

/// A stack contains this module, perhaps for the first time. A library may bring the interpreter
/// long after the start, as in programs that embed one. The module's own symbol table is searched,
/// so nothing locks.
pub(crate) fn meet(module: &Module) {
    if PYTHON.state.load(Ordering::Relaxed) != UNKNOWN {
        return;
    }
    let place = (module.start >> 12 ^ module.start >> 18) % ASKED.len();
    let is_new = ASKED
        .get(place)
        .is_some_and(|asked| asked.swap(module.start, Ordering::Relaxed) != module.start);
    if is_new
        && let Some(symbols) = module.symbols()
        && !symbols.find(c"Py_GetVersion").is_null()
    {
        BROUGHT.store(module.start, Ordering::Relaxed);
        find_runtimes(|name| symbols.find(name));
    }
}

/// A library is about to be unloaded, perhaps the one that brought the interpreter. The interpreter
/// is not used until that is known.
pub(crate) fn unloading() -> bool {
    BROUGHT.load(Ordering::Relaxed) != 0
        && PYTHON
            .state
            .compare_exchange(FOUND, SEARCHING, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
}

/// The library was unloaded, or not.
pub(crate) fn unloaded(is_hidden: bool) {
    for asked in &ASKED {
        asked.store(0, Ordering::Relaxed);
    }
    if is_hidden {
        let brought = BROUGHT.load(Ordering::Relaxed);
        let is_there = modules::find(brought)
            .filter(|module| module.start == brought)
            .and_then(|module| module.symbols())
            .is_some_and(|symbols| !symbols.find(c"Py_GetVersion").is_null());
        // A later interpreter is not looked for: a thread may still use the first.
        let state = if is_there { FOUND } else { ABSENT };
        PYTHON.state.store(state, Ordering::Release);
    }
}

/// Takes the interpreter whose symbols `search` finds, unless there is one or another thread is
/// searching.
fn find_runtimes(search: impl Fn(&CStr) -> *const c_void) {
    let claim =
        PYTHON
            .state
            .compare_exchange(UNKNOWN, SEARCHING, Ordering::AcqRel, Ordering::Acquire);
    if claim.is_err() {
        return;
    }
    // SAFETY: `search` answers like dlsym; an interpreter in the program itself is not unloaded,
    // and for one that a library brought `unloading` is called before.
    let state = match unsafe { Runtime::find(&search) } {
        Ok(runtime) => {
            let eval = search(c"_PyEval_EvalFrameDefault") as usize;
            let eval = unwind::extent(eval).unwrap_or(Extent::NOWHERE);
            // SAFETY: as above.
            let api = unsafe { Api::find(&search) };
            let cell = PYTHON.interpreter.get();
            // SAFETY: only the thread that set the state to SEARCHING gets here, and no thread
            // reads before FOUND.
            unsafe { cell.write(MaybeUninit::new(Interpreter { runtime, eval, api })) };
            FOUND
        }
        // A library may bring it later.
        Err(PythonRefusal::NoPython) => UNKNOWN,
        Err(_) => ABSENT,
    };
    PYTHON.state.store(state, Ordering::Release);
}

#[inline]
fn python() -> Option<&'static Interpreter> {
    if PYTHON.state.load(Ordering::Acquire) != FOUND {
        return None;
    }
    let cell = PYTHON.interpreter.get();
    // SAFETY: FOUND is stored after the cell was written, and nothing writes it again.
    let interpreter = unsafe { &*cell };
    // SAFETY: as above: it is initialised.
    Some(unsafe { interpreter.assume_init_ref() })
}

/// Whether this process runs a supported Python.
#[inline]
pub(crate) fn is_python() -> bool {
    PYTHON.state.load(Ordering::Relaxed) == FOUND
}

/// Whether the calling thread shuts the interpreter down.
pub(crate) fn is_ending() -> bool {
    python().is_some_and(|interpreter| interpreter.runtime.is_ended_here())
}

/// Runs `work` with the interpreter, if creators can be followed.
pub(crate) fn with_python<T>(work: impl FnOnce(&'static Runtime, &'static Api) -> T) -> Option<T> {
    let interpreter = python()?;
    let api = interpreter.api.as_ref()?;
    Some(work(&interpreter.runtime, api))
}

/// The calling thread unmaps memory. If it is shutting the interpreter down, this may free frames
/// of other threads while they are being read.
pub(crate) fn unmapping() {
    if is_ending() {
        walkers::wait();
    }
}

/// The frames of languages with a runtime in the calling thread.
#[derive(Clone, Copy)]
pub(crate) struct Languages<'a> {
    pub(crate) python: Option<&'a InPython>,
    pub(crate) java: Option<&'a InJava>,
}

/// Python's frames are only hashed, and read again when their text is needed: until the hook
/// returns they are the same.
pub(crate) struct InPython {
    runtime: &'static Runtime,
    walked: PythonWalk,
    /// The creator of the running task, work item or thread.
    junction: Option<Junction>,
}

pub(crate) struct InJava {
    frames: [java::RawFrame; DEPTH],
    walked: java::JavaWalk,
}

impl Languages<'_> {
    /// Equal for equal stacks; 0 if there is none.
    #[inline]
    pub(crate) fn hash(self) -> u64 {
        let python = self.python.map_or(0, InPython::hash);
        python ^ self.java.map_or(0, |found| found.walked.hash)
    }

    /// Writes the frames. Their text is read now, while the frames are alive.
    pub(crate) fn push(self, mapping: &TableMapping, mut push: impl FnMut(FrameRecord)) {
        if let Some(java) = self.java {
            java::render(&java.frames, &java.walked, |file, function, line| {
                push_text(
                    mapping,
                    RuntimeLanguage::Java,
                    (file, function, line),
                    &mut push,
                );
            });
        }
        if let Some(python) = self.python {
            python.push(mapping, &mut push);
        }
    }
}

impl InPython {
    /// Follows the native stack and reads Python's frames. The native stack ends where the
    /// interpreter called out, if Python's frames continue from there: the native frames further
    /// out are the interpreter running them.
    #[inline]
    pub(crate) fn look(native: &mut Native) -> Option<Self> {
        let Some(interpreter) = python() else {
            native.follow(Extent::NOWHERE);
            return None;
        };
        let is_at_loop = native.follow(interpreter.eval);
        let runtime = &interpreter.runtime;
        // A frame is complete when the interpreter calls out, but a signal may arrive at any time.
        let trace = &native.trace;
        let is_whole = is_at_loop && trace.is_generated_sure && trace.generated.is_none();
        let walk = Walk::start();
        let mut search = Search::new();
        let walked = runtime.glance(DEPTH, is_whole, |place| search.pass(runtime, place));
        drop(walk);
        if is_at_loop {
            if walked.is_some_and(|walked| walked.frames > 0 && !walked.is_broken) {
                native.trace.is_whole = true;
            } else {
                native.follow(Extent::NOWHERE);
            }
        }
        walked.map(|walked| Self {
            runtime,
            walked,
            junction: search.finish(&walked),
        })
    }

    #[inline]
    fn hash(&self) -> u64 {
        let creator = self.junction.map_or(0, |one| u64::from(one.creator.stack));
        self.walked.hash ^ creator.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// How many creators this stack has, for a stack that itself creates something; `None` if no
    /// Python runs. The innermost few are kept.
    pub(crate) fn depth_as_creator(&mut self) -> Option<u8> {
        if self.walked.frames == 0 {
            return None;
        }
        self.junction = self.junction.filter(|one| !one.creator.is_deepest());
        let depth = self.junction.map(|one| one.creator.depth.saturating_add(1));
        Some(depth.unwrap_or(0))
    }

    #[inline(never)]
    fn push(&self, mapping: &TableMapping, push: &mut impl FnMut(FrameRecord)) {
        let mut frames = [RawFrame::default(); DEPTH];
        let walk = Walk::start();
        let Some(walked) = self.runtime.walk(&mut frames) else {
            return;
        };
        let mut record = [0; ROOM];
        let length = self.runtime.render(&frames, &walked, &mut record);
        drop(walk);
        let mut rest = record.get(STACK_HEAD..length).unwrap_or_default();
        let mut left = self.junction.map_or(DEPTH, |one| one.after);
        while let Some((frame, after)) = RecordedFrame::read(rest)
            && left > 0
        {
            let text = (frame.file, frame.function, frame.line);
            push_text(mapping, RuntimeLanguage::Python, text, push);
            rest = after;
            left -= 1;
        }
        if let Some(Junction { creator, .. }) = self.junction {
            mapping.each_frame(creator.stack, |frame| {
                if matches!(frame, FrameRecord::Language { .. }) {
                    push(frame);
                }
            });
        }
    }
}

impl InJava {
    /// Reads the frames of the calling thread, whose native stack is `trace`.
    #[inline(never)]
    pub(crate) fn here(trace: &mut Trace) -> Option<Self> {
        let mut frames = [java::RawFrame::NONE; DEPTH];
        let walked = java::walk(trace, &mut frames)?;
        Some(Self { frames, walked })
    }
}

fn push_text(
    mapping: &TableMapping,
    tongue: RuntimeLanguage,
    (file, function, line): (&[u8], &[u8], u32),
    push: &mut impl FnMut(FrameRecord),
) {
    let hash = hash_of(hash_of(SEED, file), function);
    if let Some(text) = mapping.text(&GROUND, hash, || (file, function)) {
        push(FrameRecord::Language { tongue, text, line });
    }
}

/// A frame of a record.
struct RecordedFrame<'a> {
    line: u32,
    file: &'a [u8],
    function: &'a [u8],
}

impl<'a> RecordedFrame<'a> {
    /// The first frame, and the rest.
    fn read(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (head, rest) = bytes.split_at_checked(FRAME_HEAD)?;
        let short = |at: usize| {
            let bytes = head.get(at..at + 2)?;
            Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
        };
        let line = u32::from_le_bytes(head.get(1..5)?.try_into().ok()?);
        let (file, rest) = rest.split_at_checked(short(9)?)?;
        let (function, rest) = rest.split_at_checked(short(11)?)?;
        let frame = Self {
            line,
            file,
            function,
        };
        Some((frame, rest))
    }
}

pub(crate) const SEED: u64 = 0xcbf2_9ce4_8422_2325;

pub(crate) fn hash_of(seed: u64, bytes: &[u8]) -> u64 {
    let mut hash = seed ^ bytes.len() as u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
