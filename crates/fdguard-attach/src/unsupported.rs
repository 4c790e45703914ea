//! Machines for which there is no code to run on a borrowed thread: everything is refused.

use std::ffi::CStr;

use crate::{Error, Refusal, RemoteCall, Step};

/// A process that cannot be entered on this machine: there is no value of it.
#[derive(Debug)]
pub enum NoTarget {}

impl NoTarget {
    /// What the name of a memory file begins with that holds an injected library.
    pub const LIBRARY_PREFIX: &str = "fdguard-";

    /// Refuses.
    pub fn examine(_pid: u32) -> Result<Self, Refusal> {
        Err(Refusal::Unsupported)
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        match *self {}
    }

    /// Is never called.
    pub fn call(
        &self,
        _library: &[u8],
        _entry: &CStr,
        _argument: &[u8],
    ) -> Result<RemoteCall, Error> {
        match *self {}
    }

    /// Is never called.
    #[doc(hidden)]
    pub fn call_observed(
        &self,
        _library: &[u8],
        _entry: &CStr,
        _argument: &[u8],
        _on_step: &(dyn Fn(Step) + Sync),
    ) -> Result<RemoteCall, Error> {
        match *self {}
    }
}
