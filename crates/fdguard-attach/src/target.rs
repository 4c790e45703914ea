//! A process that can be entered, and calls inside it.

use std::ffi::CStr;
use std::time::Duration;

use crate::Refusal;

/// A running process, examined and not yet touched.
#[derive(Debug)]
pub struct Target {
    pid: u32,
}

/// A function was called inside the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What the function returned.
    pub returned: i32,
    /// How long the borrowed thread did not do its own work.
    pub stop: Duration,
}

/// The call was not made, and the process goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process cannot be entered.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Target {
    /// Looks at a process without stopping it.
    pub fn examine(pid: u32) -> Result<Self, Refusal> {
        let _ = pid;
        Err(Refusal::Gone)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Loads `library` (the bytes of a shared object), unless it is loaded already, and calls its
    /// function `int entry(const void *argument, size_t size)` with a copy of `argument`.
    pub fn call(&self, library: &[u8], entry: &CStr, argument: &[u8]) -> Result<Call, Error> {
        let _ = (library, entry, argument);
        Err(Error::Refused(Refusal::Gone))
    }
}
