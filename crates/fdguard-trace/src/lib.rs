//! Traces a program and reports which line opened what is still open.
//!
//! A [`TraceSource`] records what the processes of a program open and close. There are three. With
//! [`PreloadSource`] the program is started with the injected library and a private directory; with
//! [`InjectSource`] the library is put into processes that already run; with [`KernelSource`]
//! programs in the kernel report about any process.
//! A [`TraceSession`] owns a source, the thread that reads its events, the tables and the symbols,
//! and yields a [`TraceState`]: what is open by line, the lifetimes of descriptors, the hazards and
//! the gaps, as a plain value. [`TracedCommand::launch`] starts a program with a session;
//! [`AttachedTrace::attach`] begins one in running processes;
//! [`ObservedTrace::find`] finds a trace that another fdguard runs, and gives a session that reads
//! it without disturbing it.

mod attach_dir;
mod attached;
mod call_class;
mod children;
mod error;
mod feed;
mod go;
mod inject;
mod java;
mod kernel;
mod latest_keys;
mod launch;
mod lifetimes;
mod listener;
mod mixed;
mod module_files;
mod node;
mod observed_trace;
mod omission;
mod own_child;
mod pid_namespace;
mod preload;
mod program;
mod protection;
mod record_files;
mod recording_gaps;
mod ring;
mod session;
mod site;
mod source;
mod source_kind;
mod stacks;
mod stale_dirs;
mod state;
mod symbol;
mod table;
mod trace_dir;
mod why;

pub use attached::{AttachRefusal, AttachStep, AttachedTrace, TraceEnder};
pub use error::Error;
pub use fdguard_kernel::LoadRefusal;
pub use fdguard_why::{Basis, Chain, Hop, Why};
pub use go::{GoFrame, GoLines};
pub use inject::{AttachFailure, InjectSource};
pub use kernel::KernelSource;
#[cfg(feature = "fuzzing")]
pub use kernel::{fuzz_captured_code, fuzz_machine_code, fuzz_program};
pub use launch::{Options, TracedCommand};
pub use lifetimes::{SiteDetail, TracedProcess};
pub use listener::monotonic;
#[cfg(feature = "fuzzing")]
pub use node::fuzz_inspector;
pub use observed_trace::{ObservedTrace, UntracedProgram};
pub use preload::PreloadSource;
pub use program::{BlindReason, GO, TracedProgram};
pub use protection::{Protection, ReportPolicy};
pub use ring::DrainedEvents;
pub use session::TraceSession;
pub use site::{CallPath, OpenFd, Site};
pub use source::{EventReader, TraceSource};
pub use source_kind::{SourceKind, SourceReason};
pub use state::{OpenSites, StateParts, TraceScope, TraceState};
pub use symbol::Symbols;
#[cfg(feature = "fuzzing")]
pub use table::fuzz_exit_report;
pub use table::{Descriptor, ExitReport, ProcessTable, ProcessTables};
pub use trace_dir::library;
pub use why::{
    ExpectedStop, HeapAnswer, HeapRefusal, HeapTarget, HeapWatch, ProcessWhy, SiteWhy, WalkFaults,
    expected_stop,
};
