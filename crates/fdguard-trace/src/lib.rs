//! Launches a program under the tracer and tells which line opened what is still open.
//!
//! [`Traced::launch`] checks whether the injected library can see into the program, starts it with that library and a
//! private folder, and [`Traced::tables`] reads what every process of it wrote there, while it runs and after its end.
//! [`Symbols`] turns addresses into lines, and [`Site::rank`] puts descriptors of one origin together.

mod abandoned;
mod error;
mod folder;
mod launch;
mod program;
mod site;
mod symbol;
mod table;

pub use error::Error;
pub use folder::library;
pub use launch::{Options, Traced};
pub use program::{Blind, Program};
pub use site::{Open, Site};
pub use symbol::Symbols;
pub use table::{Descriptor, Table, Tables};
