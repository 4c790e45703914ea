//! Calls a function of a library inside a process that already runs.
//!
//! [`Target::examine`] looks at the process without stopping it and refuses what cannot be done
//! safely. [`Target::call`] borrows one thread for a few milliseconds, loads the library if it is
//! not loaded yet, calls one function of it, and returns the thread as it was. If this process is
//! killed at any moment, the other one goes on.

mod refusal;
mod target;

pub use refusal::Refusal;
pub use target::{Call, Error, Target};
