//! Launches a program under the tracer and tells which line opened what is still open.
//!
//! [`Traced::launch`] checks whether the injected library can see into the program, starts it with that library and a
//! private folder, and [`Traced::tables`] reads what every process of it wrote there, while it runs and after its end.
//! Meanwhile a thread reads their events and looks out for hazards ([`Traced::hazards`]).
//! [`Injection`] is the same for programs that somebody else starts.
//! [`Observed::find`] finds a trace that another fdguard runs, and reads the same without disturbing it.
//! [`Symbols`] turns addresses into lines, and [`Site::rank`] puts descriptors of one origin together.

mod abandoned;
mod call_class;
mod children;
mod error;
mod feed;
mod folder;
mod go;
mod injection;
mod launch;
mod lifetimes;
mod listener;
mod observe;
mod omission;
mod program;
mod protect;
mod ring;
mod runtime;
mod site;
mod symbol;
mod table;

pub use error::Error;
pub use folder::library;
pub use injection::Injection;
pub use launch::{Options, Traced};
pub use lifetimes::{Detail, TracedProcess};
pub use listener::monotonic;
pub use observe::{Became, Observed};
pub use program::{Blind, GO, Program};
pub use protect::{Protection, Report};
pub use site::{CallPath, OpenFd, Site};
pub use symbol::Symbols;
pub use table::{Descriptor, Farewell, Table, Tables};
