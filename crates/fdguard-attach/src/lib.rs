//! Calls a function of a library inside a process that already runs.
//!
//! [`Target::examine`] looks at the process without stopping it and refuses what cannot be done
//! safely. [`Target::call`] borrows one thread for a few milliseconds, loads the library if it is
//! not loaded yet, calls one function of it, and returns the thread as it was. If this process is
//! killed at any moment, the other one goes on.
//!
//! Elsewhere than on x86-64 Linux every process is refused.

mod error;
mod refusal;
mod remote_call;
mod step;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod unsupported;
mod unwind_index;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod x86_64;

pub use error::Error;
pub use refusal::Refusal;
pub use remote_call::RemoteCall;
pub use step::Step;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub use unsupported::NoTarget as Target;
pub use unwind_index::is_usable_index;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub use x86_64::Target;
#[cfg(all(feature = "fuzzing", target_os = "linux", target_arch = "x86_64"))]
pub use x86_64::fuzz_image;
