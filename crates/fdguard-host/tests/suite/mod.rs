//! The tests of the whole crate, one binary.

mod scope_close;
mod scope_daemon;
mod scope_ends;
mod scope_harness;
mod scope_inside;
mod scope_paths;
