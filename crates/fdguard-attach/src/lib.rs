//! Calls a function of a library inside a process that already runs.
//!
//! [`Target::examine`] looks at the process without stopping it and refuses what cannot be done
//! safely. [`Target::call`] borrows one thread for a few milliseconds, loads the library if it is
//! not loaded yet, calls one function of it, and returns the thread as it was. If this process is
//! killed at any moment, the other one goes on.
//!
//! The way of a call: `candidates` picks a thread by what it waits for, `thread` stops it, `stack`
//! follows its stack, `judge` decides whether it holds a lock that the loader needs, `injection`
//! runs the code of `remote` on it, and `restart` says what it continues with.

mod borrow;
mod candidates;
mod error;
mod examine;
mod image;
mod injection;
mod judge;
mod leftovers;
mod lock;
mod maps;
mod memory;
mod pending;
mod ptrace;
mod refusal;
mod remote;
mod restart;
mod stack;
mod step;
mod target;
mod thread;

pub use error::Error;
pub use refusal::Refusal;
pub use step::Step;
pub use target::{RemoteCall, Target};
