//! The record layout that the injected library writes and the tracer reads.
//!
//! There is one file per process, mapped shared by the library and read from outside while the
//! process is alive and after it has ended. [`TableMapping`] is that file as a value: every field
//! is an atomic, and all zeros is the empty state, so a sparse file is a valid mapping. Writers
//! never wait: they may be many threads, signal handlers, or a thread that dies in the middle of a
//! step. [`TableImage`] reads the same bytes and trusts only complete records.
//!
//! A stack is identified by the index of its entry, so a writer that meets an entry which another
//! one is still filling can use its id at once. Nothing is ever moved or freed.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod attach;
mod calls;
mod event;
mod frame;
mod header;
mod image;
mod loader;
mod mapping;
mod module;
mod numbered;
pub mod python;
mod slot;
mod stack;
mod text;
mod why;
mod why_java;
mod words;

pub use attach::{
    ATTACH, AttachAnswer, AttachRequest, DETACH, InspectorAnswer, InspectorRequest, WAKE_INSPECTOR,
};
pub use calls::{CloseCall, FdCall, OpenCall};
pub use event::{
    CLOSE_FINALIZED, CLOSE_THREADS, EventKind, EventRecord, LOCK_BEGINS, PreventedHarm, RingEvent,
};
pub use frame::{FrameRecord, RuntimeLanguage};
pub use header::{MAGIC, TableHeader, VERSION};
pub use image::{SiteRecord, TableImage};
pub use loader::{
    ANY_ORDER, Bytes, LoaderOutcome, Omission, accepts_any_order, interpreter, loading,
};
pub use mapping::{Area, Frames, TableMapping};
pub use module::{Module, ModuleRecord};
pub use slot::{CloseRecord, OpenRecord, Slot, SlotRecord};
pub use stack::{Account, StackRecord};
pub use text::TextRecord;
pub use why::{
    END_WALK, LISTS, NUMBER, ORIGIN_SHIFT, SKIPPED, UNTRACKED, WALK, WALK_MAGIC, WALK_PLACES,
    WalkHead, WalkNode, WalkRequest, WalkState,
};
pub use why_java::{
    JAVA_TAKEN, JAVA_WALK, JAVA_WALK_MAGIC, JavaEdge, JavaList, JavaNumber, JavaRoot, JavaWalkHead,
    JavaWalkRequest, JavaWalkState,
};

/// The exit report of a process that exited without time to list what it left open.
pub const INCOMPLETE_EXIT_REPORT: &[u8] = b"untold\0";
/// The end of the name of a file beside the mapping: the process waits until its heap was walked,
/// or this file is gone.
pub const WAITING: &[u8] = b".waiting\0";
/// The name of a file in the directory of mappings: no heap will be walked any more.
pub const NOBODY_ASKS: &[u8] = b"/nobody-asks\0";
/// Descriptor numbers that have a slot; opens beyond count as lost.
pub const NUMBERS: usize = 1 << 18;
/// Words with one bit for each number.
const INHERITED: usize = NUMBERS / 64;
/// The most distinct stacks.
pub const STACKS: usize = 1 << 14;
/// The most distinct texts of language frames.
pub const TEXTS: usize = 1 << 14;
/// Words for frames and texts.
pub const WORDS: usize = 1 << 19;
/// Events that the ring holds.
pub const EVENTS: usize = 1 << 15;
/// Modules that are remembered.
pub const MODULES: usize = 1 << 10;
/// The most frames of a stack, native and language together.
pub const FRAMES: usize = 128;
