//! The way into a process on x86-64 Linux.
//!
//! `candidates` picks a thread by what it waits for, `thread` stops it, `stack` follows its stack,
//! `judge` decides whether it holds a lock that the loader needs, `injection` and `function_call`
//! run the code of `remote` on it, and `restart` says what it continues with. `entry` makes three
//! stops of it.

mod borrow;
mod candidates;
mod entry;
mod examine;
mod fate;
mod function_call;
mod image;
mod injection;
mod judge;
mod leftovers;
mod lock;
mod maps;
mod memory;
mod pending;
mod ptrace;
mod remote;
mod restart;
mod stack;
mod stop_times;
mod target;
mod thread;

#[cfg(feature = "fuzzing")]
pub use image::fuzz_image;
pub use target::Target;
