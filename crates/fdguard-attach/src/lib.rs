//! Calls a function of a library inside a process that already runs.
//!
//! [`Target::examine`] looks at the process without stopping it and refuses what cannot be done
//! safely. [`Target::call`] borrows one thread for a few milliseconds, loads the library if it is
//! not loaded yet, calls one function of it, and returns the thread as it was. If this process is
//! killed at any moment, the other one goes on.
//!
//! The way of a call: `candidates` picks a thread by what it waits for, `thread` stops it, `stack`
//! follows its stack, `judge` decides whether it holds a lock that the loader needs, `injection`
//! and `function_call` run the code of `remote` on it, and `restart` says what it continues with.
//! `entry` makes four stops of it.
//!
//! Elsewhere than on x86-64 Linux every process is refused.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod borrow;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod candidates;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod entry;
mod error;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod examine;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod fate;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod function_call;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod image;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod injection;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod judge;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod leftovers;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod lock;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod maps;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod pending;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod ptrace;
mod refusal;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod remote;
mod remote_call;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod restart;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stack;
mod step;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod stop_times;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod target;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod thread;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod unsupported;

pub use error::Error;
pub use refusal::Refusal;
pub use remote_call::RemoteCall;
pub use step::Step;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use target::Target;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub use unsupported::NoTarget as Target;
