//! Launches a program under the tracer and reports which line opened what is still open.
//!
//! [`TracedCommand::launch`] checks whether the injected library can see into the program, starts
//! it with that library and a private directory, and [`TracedCommand::tables`] reads what each of
//! its processes wrote there, while it runs and after it has ended. Meanwhile a thread reads their
//! events and detects hazards ([`TracedCommand::hazards`]). [`Injection`] is the same for programs
//! that are started elsewhere. [`ObservedTrace::find`] finds a trace that another fdguard runs, and
//! reads the same without disturbing it. [`Symbols`] turns addresses into lines, and [`Site::rank`]
//! groups descriptors by origin.

mod call_class;
mod children;
mod error;
mod feed;
mod go;
mod injection;
mod launch;
mod lifetimes;
mod listener;
mod observed_trace;
mod omission;
mod program;
mod protection;
mod ring;
mod runtime;
mod site;
mod stale_dirs;
mod symbol;
mod table;
mod trace_dir;

pub use error::Error;
pub use injection::Injection;
pub use launch::{Options, TracedCommand};
pub use lifetimes::{SiteDetail, TracedProcess};
pub use listener::monotonic;
pub use observed_trace::{ObservedTrace, UntracedProgram};
pub use program::{BlindReason, GO, TracedProgram};
pub use protection::{Protection, ReportPolicy};
pub use site::{CallPath, OpenFd, Site};
pub use symbol::Symbols;
pub use table::{Descriptor, ExitReport, ProcessTable, ProcessTables};
pub use trace_dir::library;
