//! The code that created the current task, work item or thread.
//!
//! A library may open a descriptor in its own task (a task group, `gather`), on a worker of an
//! executor or on a thread. The stack then ends in the event loop or in the thread's bootstrap,
//! without the line that requested it. So the library remembers the creator's stack when the task,
//! item or thread is created, and appends its Python frames to every stack taken inside. See
//! decision 052.
//!
//! The current task is recognised by the frame of its outermost coroutine, a work item by the
//! `self` of the method that runs it, and a thread by its control block.

mod patch;
mod table;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::python::{Place, PythonWalk, Runtime};
use crate::{language, record, stack, thread};
pub(crate) use patch::Api;
use table::Table;

/// A creator of a creator of a creator is remembered, and none beyond: a task that always creates
/// its own successor would otherwise create a new stack each time.
const MOST_CREATORS: u8 = 3;

/// What is followed, as bits.
const TASKS: u32 = 1;
const ITEMS: u32 = 2;
const THREADS: u32 = 4;
static FOLLOWED: AtomicU32 = AtomicU32::new(0);

/// The code of the method that runs a work item.
static RUN_CODE: AtomicU64 = AtomicU64::new(0);

static TABLE: Table = Table::new();
/// Stack ids are valid in one process: a forked child has its own.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The stack that created something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Creator {
    /// Its id in the mapping.
    pub(crate) stack: u32,
    /// How many creators it has itself.
    pub(crate) depth: u8,
}

impl Creator {
    /// Whether it already has as many creators as are remembered.
    pub(crate) const fn is_deepest(self) -> bool {
        self.depth >= MOST_CREATORS
    }
}

/// Distinguishes the uses of one address.
#[derive(Clone, Copy)]
enum Use {
    Coroutine { code: u64 },
    Item,
    Thread,
}

impl Use {
    fn mark(self) -> u64 {
        let generation = u64::from(GENERATION.load(Ordering::Relaxed)) << 48;
        generation
            ^ match self {
                Self::Coroutine { code } => code,
                Self::Item => 1,
                Self::Thread => 2,
            }
    }
}

/// The search for a creator along a stack, from its innermost frame on.
pub(crate) struct Search {
    followed: u32,
    /// Frames passed so far.
    passed: usize,
    /// A coroutine's frame whose caller was not seen yet.
    inner: Option<Place>,
    found: Option<Junction>,
}

/// Where a stack continues with its creator's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Junction {
    pub(crate) creator: Creator,
    /// How many frames belong to what was created. Frames further out only run it: the event loop,
    /// the worker's loop.
    pub(crate) after: usize,
}

impl Search {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            followed: FOLLOWED.load(Ordering::Relaxed),
            passed: 0,
            inner: None,
            found: None,
        }
    }

    /// Handles the next frame. A task's outermost coroutine is one that no coroutine awaits.
    #[inline]
    pub(crate) fn pass(&mut self, runtime: &Runtime, place: Place) {
        if self.followed & (TASKS | ITEMS) == 0 || self.found.is_some() {
            return;
        }
        if place.is_generator {
            self.passed = self.passed.saturating_add(1);
            self.inner = Some(place);
            return;
        }
        self.take_task();
        self.passed = self.passed.saturating_add(1);
        if place.code == RUN_CODE.load(Ordering::Relaxed) && self.found.is_none() {
            let item = runtime.first_argument(place.frame);
            let creator = item.and_then(|item| TABLE.find(item, Use::Item.mark()));
            self.found = creator.map(|creator| self.join(creator));
        }
    }

    fn take_task(&mut self) {
        if let Some(Place { frame, code, .. }) = self.inner.take() {
            let creator = TABLE.find(frame, Use::Coroutine { code }.mark());
            self.found = creator.map(|creator| self.join(creator));
        }
    }

    fn join(&self, creator: Creator) -> Junction {
        Junction {
            creator,
            after: self.passed,
        }
    }

    /// The nearest creator; that of the thread if none is nearer.
    #[inline]
    pub(crate) fn finish(mut self, walked: &PythonWalk) -> Option<Junction> {
        if self.followed == 0 || walked.frames == 0 {
            return None;
        }
        if !walked.is_truncated && !walked.is_broken {
            self.take_task();
        }
        let of_thread = || TABLE.find(thread::pointer() as u64, Use::Thread.mark());
        let after = walked.frames;
        self.found.or_else(|| {
            let creator = of_thread().filter(|_| self.followed & THREADS != 0)?;
            Some(Junction { creator, after })
        })
    }
}

/// The stack that is about to create something, if Python runs in it.
fn here() -> Option<Creator> {
    let mut found = None;
    record::with(|mapping| found = stack::creator(mapping));
    found
}

/// A task is about to be created with this coroutine.
fn task_created(coroutine: Place) {
    if let Some(creator) = here() {
        let code = coroutine.code;
        TABLE.insert(coroutine.frame, Use::Coroutine { code }.mark(), creator);
    }
}

/// A work item was created.
fn item_created(item: u64) {
    if let Some(creator) = here() {
        TABLE.insert(item, Use::Item.mark(), creator);
    }
}

/// A thread is about to be started: returns its creator if that is Python code. Work items are
/// followed from the first worker on, because a pool starts one with its first item.
pub(crate) fn of_new_thread() -> Option<Creator> {
    language::with_python(patch::follow);
    language::with_python(|_, _| here()).flatten()
}

/// The thread was started, with this control block.
pub(crate) fn thread_started(block: u64, creator: Option<Creator>) {
    match creator {
        Some(creator) => {
            TABLE.insert(block, Use::Thread.mark(), creator);
            FOLLOWED.fetch_or(THREADS, Ordering::Relaxed);
        }
        // The block may have belonged to another thread.
        None if FOLLOWED.load(Ordering::Relaxed) & THREADS != 0 => TABLE.remove(block),
        None => {}
    }
}

/// A file was opened: once Python imports asyncio, tasks are possible.
#[inline]
pub(crate) fn file_opened<'a>(path: impl FnOnce() -> &'a [u8]) {
    const DIR: &[u8] = b"/asyncio/";
    if FOLLOWED.load(Ordering::Relaxed) & TASKS != 0 || !language::is_python() {
        return;
    }
    if path().windows(DIR.len()).any(|part| part == DIR) {
        language::with_python(patch::follow);
    }
}

/// An event loop may have been created.
#[inline]
pub(crate) fn loop_created() {
    if FOLLOWED.load(Ordering::Relaxed) & TASKS == 0 {
        language::with_python(patch::follow);
    }
}

/// The library came into a running program, which may have imported everything already.
pub(crate) fn look_for_tasks() {
    language::with_python(patch::follow);
}

/// The recording ended: restores what was changed in the interpreter.
pub(crate) fn release() {
    patch::release();
    FOLLOWED.store(0, Ordering::Relaxed);
    forget();
}

/// In a forked child, or a new recording: the stacks are in another mapping.
pub(crate) fn forget() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    patch::forget();
}
