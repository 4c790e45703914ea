//! The abort handle of a call: it can cancel the call and shut down its socket, but cannot close
//! anything that the owner uses.

use std::fmt;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use schemars::JsonSchema;
use serde::Serialize;

use super::event::{Event, Level, What, Who};
use super::failure::Failure;
use super::state::{CallInfo, Phase, Slot, State};

/// Aborts a call, from any thread and any number of times. After the end of the call it holds no
/// descriptor.
#[derive(Clone, Debug)]
pub struct AbortHandle {
    pub(super) state: Arc<State>,
}

/// Result of an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Aborted {
    /// Sockets that were shut down: 1, or 0 if the call has no socket yet or no longer has one.
    pub sockets: u32,
    /// The call's phase at the time of the abort. `over`: there was nothing to abort.
    pub phase: Phase,
    /// The call had already been aborted.
    pub repeated: bool,
}

/// Why a call was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// A client requested it.
    Asked,
    /// No byte was transferred for too long.
    Stale,
    /// The host is shutting down.
    Shutdown,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked",
            Self::Stale => "stale",
            Self::Shutdown => "shutdown",
        })
    }
}

impl AbortHandle {
    /// Aborts the call: the owner's wait returns [`Failure::Aborted`], the peer sees the end of the
    /// connection, and no descriptor number is freed.
    pub fn abort(&self) -> Aborted {
        self.abort_for(Reason::Asked)
    }

    /// The same with another reason.
    pub fn abort_for(&self, reason: Reason) -> Aborted {
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
    pub(super) by: Who,
    pub(super) reason: Reason,
    pub(super) phase: Phase,
    pub(super) sockets: u32,
}

impl Abort {
    pub(super) fn failure(&self) -> Failure {
        Failure::Aborted {
            reason: self.reason,
            phase: self.phase,
        }
    }
}

impl State {
    fn abort(&self, reason: Reason) -> Aborted {
        let (done, note) = mark_and_shut(&mut self.slot(), reason);
        // The flag is set and the lock is released: a waking owner finds both.
        self.token.cancel();
        let is_news = !done.repeated && done.phase != Phase::Over;
        if is_news && let Some(sink) = &self.sink {
            let ms = self.age().as_secs_f64() * 1e3;
            let mut event = Event::new(What::Aborted, Some(self.id.clone()), done.phase, ms);
            event.level = if done.sockets == 0 {
                Level::Warning
            } else {
                Level::Info
            };
            event.tcp_force_closed = Some(done.sockets);
            event.reason = Some(reason);
            event.note = note;
            sink(&event);
        }
        done
    }
}

fn mark_and_shut(slot: &mut Slot, reason: Reason) -> (Aborted, Option<&'static str>) {
    let phase = slot.phase();
    if phase == Phase::Over || slot.abort.is_some() {
        let repeated = slot.abort.is_some();
        return (
            Aborted {
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
        None if phase == Phase::Resolve => (
            0,
            Some(
                "no socket yet: nothing was sent, and the result of the name lookup will be discarded",
            ),
        ),
        None => (0, Some("no socket yet: nothing was sent")),
    };
    slot.abort = Some(Abort {
        by: Who::here(),
        reason,
        phase,
        sockets,
    });
    (
        Aborted {
            sockets,
            phase,
            repeated: false,
        },
        note,
    )
}
