//! The running calls of a host: a limited number, each with an id for aborting it.

use super::abort::{AbortReason, AbortResult};
use super::caller::Caller;
use super::failure::CallFailure;
use super::owner::Call;
use super::request::CallRequest;
use super::state::CallInfo;
use crate::Error;

/// Default maximum number of concurrent calls. Each costs two descriptors.
const CAP: usize = 64;

/// A caller with a cap.
#[derive(Clone, Debug)]
pub struct Calls {
    caller: Caller,
    cap: usize,
}

impl Calls {
    /// With the usual cap.
    #[must_use]
    pub fn new(caller: Caller) -> Self {
        Self::with_cap(caller, CAP)
    }

    /// With another cap.
    #[must_use]
    pub fn with_cap(caller: Caller, cap: usize) -> Self {
        Self { caller, cap }
    }

    /// Starts a call. It stays in the list until it ends or its owner is dropped.
    pub fn start(&self, request: CallRequest) -> Result<Call, Error> {
        self.caller
            .begin_within(request, self.cap)
            .map_err(|failure| match failure {
                CallFailure::Full(count) => Error::Full {
                    what: "calls",
                    count,
                },
                CallFailure::Closing => Error::Closing,
                CallFailure::Bad(line) => Error::Bad(line),
                other => Error::Call(other),
            })
    }

    /// The running calls, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<CallInfo> {
        self.caller.running()
    }

    /// One of them.
    pub fn find(&self, id: &str) -> Result<CallInfo, Error> {
        Ok(self.handle(id)?.info())
    }

    /// Aborts one of them.
    pub fn abort(&self, id: &str) -> Result<AbortResult, Error> {
        Ok(self.handle(id)?.abort())
    }

    /// Aborts all of them. Each owner still closes its own.
    pub fn abort_all(&self, reason: AbortReason) -> Vec<AbortResult> {
        let handles = self
            .list()
            .into_iter()
            .filter_map(|call| self.caller.handle(&call.id));
        handles.map(|handle| handle.abort_for(reason)).collect()
    }

    /// The client behind it.
    #[must_use]
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    fn handle(&self, id: &str) -> Result<super::AbortHandle, Error> {
        let unknown = || Error::Unknown {
            what: "call",
            id: id.to_owned(),
        };
        self.caller.handle(id).ok_or_else(unknown)
    }
}
