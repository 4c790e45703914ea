//! Go programs: whether a file is one, and the functions, files and lines of its addresses.
//!
//! A Go program carries the table that its runtime prints tracebacks from, even when it was linked
//! with `-s -w` or stripped. The reader uses that table and nothing else.

mod detect;
mod image;
mod lines;
mod module;
mod tables;
mod values;
mod version;

pub(crate) use detect::is_go;
pub use lines::{GoFrame, GoLines};
