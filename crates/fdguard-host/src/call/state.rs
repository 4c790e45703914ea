//! State shared by the owner and abort handles: the abort flag, the duplicate of the socket, the
//! phase and the counters.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::abort::Abort;
use super::event::CallSink;
use super::failure::CallFailure;
use super::wire::Meter;

/// Phase of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CallPhase {
    /// Not started: its owner has not polled it yet.
    New,
    /// Resolving the host name.
    Resolve,
    /// Connecting.
    Connect,
    /// In the TLS handshake.
    Tls,
    /// Sending the request.
    Send,
    /// The request was sent; waiting for the response headers.
    Wait,
    /// Reading the response body.
    Body,
    /// Finished.
    Over,
}

impl fmt::Display for CallPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Wait => "wait",
            Self::Body => "body",
            Self::Over => "over",
        })
    }
}

/// A running call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CallInfo {
    /// Id for aborting it.
    pub id: String,
    /// URL without user name, password and query values.
    pub url: String,
    /// HTTP method, for example `GET`.
    pub method: String,
    /// Current phase.
    pub phase: CallPhase,
    /// Milliseconds since the call started.
    pub age_ms: u64,
    /// Milliseconds since the last byte in either direction, or since the start.
    pub idle_ms: u64,
    /// HTTP bytes received, excluding TLS overhead.
    pub bytes_in: u64,
    /// HTTP bytes sent, excluding TLS overhead.
    pub bytes_out: u64,
    /// Idle for longer than the limit for stale calls.
    pub stale: bool,
}

/// The shared part of one call.
pub(super) struct State {
    pub(super) id: String,
    pub(super) method: String,
    pub(super) url: String,
    pub(super) begun: Instant,
    pub(super) stale_after: Duration,
    /// Wakes the owner if no socket does.
    pub(super) token: CancellationToken,
    pub(super) sink: Option<CallSink>,
    slot: Mutex<Slot>,
}

/// State behind the lock. An abort shuts down the duplicate while it holds the lock, so the owner
/// cannot close it meanwhile.
pub(super) struct Slot {
    phase: CallPhase,
    pub(super) spare: Option<OwnedFd>,
    meter: Option<Arc<Meter>>,
    pub(super) abort: Option<Abort>,
    counts: (u64, u64),
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("info", &self.info())
            .finish_non_exhaustive()
    }
}

impl Slot {
    pub(super) fn phase(&self) -> CallPhase {
        let is_written = self
            .meter
            .as_ref()
            .is_some_and(|meter| meter.request_is_out());
        match self.phase {
            CallPhase::Send if is_written => CallPhase::Wait,
            phase => phase,
        }
    }
}

impl State {
    pub(super) fn new(
        id: String,
        method: String,
        url: String,
        stale_after: Duration,
        sink: Option<CallSink>,
    ) -> Self {
        Self {
            id,
            method,
            url,
            begun: Instant::now(),
            stale_after,
            token: CancellationToken::new(),
            sink,
            slot: Mutex::new(Slot {
                phase: CallPhase::New,
                spare: None,
                meter: None,
                abort: None,
                counts: (0, 0),
            }),
        }
    }

    pub(super) fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn phase(&self) -> CallPhase {
        self.slot().phase()
    }

    /// The owner goes on to the next phase.
    pub(super) fn enter(&self, phase: CallPhase) {
        self.slot().phase = phase;
    }

    /// The failure of an aborted call.
    pub(super) fn aborted(&self) -> Option<CallFailure> {
        let slot = self.slot();
        slot.abort.as_ref().map(Abort::failure)
    }

    /// Stores the duplicate for aborts and enters this phase. From here on an abort reaches the
    /// socket; an earlier abort is reported now.
    pub(super) fn seat(
        self: &Arc<Self>,
        spare: OwnedFd,
        meter: Arc<Meter>,
        phase: CallPhase,
    ) -> Result<Seat, CallFailure> {
        let mut slot = self.slot();
        if let Some(abort) = &slot.abort {
            return Err(abort.failure());
        }
        slot.spare = Some(spare);
        slot.meter = Some(meter);
        slot.phase = phase;
        Ok(Seat(Arc::clone(self)))
    }

    fn empty(&self) -> Option<OwnedFd> {
        let mut slot = self.slot();
        if let Some(meter) = slot.meter.take() {
            slot.counts = meter.counts();
        }
        slot.spare.take()
    }

    /// Ends the call, once. Returns the duplicate if the connection can be reused: an earlier abort
    /// has shut it down, a later one finds nothing.
    pub(super) fn conclude(&self, keep: bool) -> Conclusion {
        let mut slot = self.slot();
        let phase = slot.phase();
        if let Some(meter) = slot.meter.take() {
            slot.counts = meter.counts();
        }
        slot.phase = CallPhase::Over;
        let abort = slot.abort.clone();
        let spare = slot.spare.take().filter(|_| keep && abort.is_none());
        Conclusion {
            spare,
            abort,
            phase,
            counts: slot.counts,
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn info(&self) -> CallInfo {
        let slot = self.slot();
        let (bytes_in, bytes_out) = slot
            .meter
            .as_ref()
            .map_or(slot.counts, |meter| meter.counts());
        let last = slot.meter.as_ref().and_then(|meter| meter.last_byte());
        let idle = last
            .map_or(self.begun, |last| last.max(self.begun))
            .elapsed();
        CallInfo {
            id: self.id.clone(),
            url: self.url.clone(),
            method: self.method.clone(),
            phase: slot.phase(),
            age_ms: whole_ms(self.age()),
            idle_ms: whole_ms(idle),
            bytes_in,
            bytes_out,
            stale: slot.phase != CallPhase::Over && idle >= self.stale_after,
        }
    }
}

/// State at the end.
pub(super) struct Conclusion {
    pub(super) spare: Option<OwnedFd>,
    pub(super) abort: Option<Abort>,
    pub(super) phase: CallPhase,
    pub(super) counts: (u64, u64),
}

/// The owner's claim on the slot: dropped, the duplicate is closed and the slot is empty.
#[derive(Debug)]
pub(super) struct Seat(Arc<State>);

impl Drop for Seat {
    fn drop(&mut self) {
        drop(self.0.empty());
    }
}

pub(super) fn whole_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
