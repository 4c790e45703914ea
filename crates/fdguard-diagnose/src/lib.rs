//! Joins watch, trace and snapshots into diagnoses, and judges a check.
//!
//! It looks at processes and reads what was saved about them, but starts no program, knows no
//! terminal and prints nothing: a command, a server or a host gives it observations and shows the
//! result.

#[cfg(feature = "trace")]
pub mod check;
pub mod clearing;
pub mod doctor;
mod error;
pub mod link;
pub mod log;
pub mod recording;
#[cfg(feature = "trace")]
pub mod trace;
pub mod watching;

pub use error::Error;
