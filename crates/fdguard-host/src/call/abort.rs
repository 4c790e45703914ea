//! The abort handle of a call: it can cancel the call and shut down its socket, but cannot close
//! anything that the owner uses.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use schemars::JsonSchema;
use serde::Serialize;

use super::event::{CallEvent, CallEventKind, EventLevel, ThreadLabel};
use super::failure::CallFailure;
use super::state::{CallInfo, CallPhase, Slot, State};

/// Aborts a call, from any thread and any number of times. After the end of the call it holds no
/// descriptor.
#[derive(Clone, Debug)]
pub struct AbortHandle {
    pub(super) state: Arc<State>,
}

/// Result of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AbortResult {
    /// Sockets that were shut down: 1, or 0 if the call has no socket yet or no longer has one.
    pub sockets: u32,
    /// The call's phase at the time of the abort. `over`: there was nothing to abort.
    pub phase: CallPhase,
    /// The call had already been aborted.
    pub repeated: bool,
}

/// Why a call was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum AbortReason {
    /// A client requested it.
    Asked,
    /// No byte was transferred for too long.
    Stale,
    /// The host is shutting down.
    Shutdown,
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked",
            Self::Stale => "stale",
            Self::Shutdown => "shutdown",
        })
    }
}

impl AbortHandle {
    /// Aborts the call: the owner's wait returns [`CallFailure::Aborted`], the peer sees the end of
    /// the connection, and no descriptor number is freed.
    pub fn abort(&self) -> AbortResult {
        self.abort_for(AbortReason::Asked)
    }

    /// The same with another reason.
    pub fn abort_for(&self, reason: AbortReason) -> AbortResult {
        self.state.abort(reason)
    }

    /// Current state of the call.
    #[must_use]
    pub fn info(&self) -> CallInfo {
        self.state.info()
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.state.id
    }
}

/// The first abort of a call.
#[derive(Clone, Debug)]
pub(super) struct Abort {
    pub(super) by: ThreadLabel,
    pub(super) reason: AbortReason,
    pub(super) phase: CallPhase,
    pub(super) sockets: u32,
}

impl Abort {
    pub(super) fn failure(&self) -> CallFailure {
        CallFailure::Aborted {
            reason: self.reason,
            phase: self.phase,
        }
    }
}

impl State {
    fn abort(&self, reason: AbortReason) -> AbortResult {
        let (done, note) = mark_and_shut(&mut self.slot(), reason);
        // The flag is set and the lock is released: a waking owner finds both.
        self.token.cancel();
        let is_news = !done.repeated && done.phase != CallPhase::Over;
        if is_news && let Some(sink) = &self.sink {
            let ms = self.age().as_secs_f64() * 1e3;
            let mut event = CallEvent::new(
                CallEventKind::Aborted,
                Some(self.id.clone()),
                done.phase,
                ms,
            );
            event.level = if done.sockets == 0 {
                EventLevel::Warning
            } else {
                EventLevel::Info
            };
            event.tcp_force_closed = Some(done.sockets);
            event.reason = Some(reason);
            event.note = note;
            sink(&event);
        }
        done
    }
}

fn mark_and_shut(slot: &mut Slot, reason: AbortReason) -> (AbortResult, Option<&'static str>) {
    let phase = slot.phase();
    if phase == CallPhase::Over || slot.abort.is_some() {
        let repeated = slot.abort.is_some();
        return (
            AbortResult {
                sockets: 0,
                phase,
                repeated,
            },
            None,
        );
    }
    let shut = slot
        .spare
        .as_ref()
        .map(|spare| shutdown(spare.as_fd(), Shutdown::Both));
    let (sockets, note) = match shut {
        // Not connected: the connect has not started, or the peer has reset it. The owner sees the
        // flag before it continues.
        Some(Ok(()) | Err(Errno::NOTCONN)) => (1, None),
        Some(Err(_)) => (
            0,
            Some(
                "cannot shut down the socket: the request may keep running until its owner polls it",
            ),
        ),
        None if phase == CallPhase::Resolve => (
            0,
            Some(
                "no socket yet: nothing was sent, and the result of the name lookup will be discarded",
            ),
        ),
        None => (0, Some("no socket yet: nothing was sent")),
    };
    slot.abort = Some(Abort {
        by: ThreadLabel::here(),
        reason,
        phase,
        sockets,
    });
    (
        AbortResult {
            sockets,
            phase,
            repeated: false,
        },
        note,
    )
}
