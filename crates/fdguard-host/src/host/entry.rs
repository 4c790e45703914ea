//! One session in the host: the gate that every use passes, and its close, which happens once.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use super::{LimitKeepers, SessionInfo};
use crate::Error;
use crate::receipt::{Overuse, Receipt, SessionEndReason};
use crate::session::{Session, SessionLimits, SessionProgram};

/// Calls in progress, and whether the session is closing. One lock for both, so that no command
/// starts in a session that was just found idle.
#[derive(Debug, Default)]
struct Gate {
    calls: usize,
    ending: Option<SessionEndReason>,
    receipt: Option<Receipt>,
}

/// A session of the host.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) client: Option<String>,
    pub(super) program: String,
    pub(super) limits: SessionLimits,
    pub(super) started_at: Timestamp,
    pub(super) session: Session,
    /// The limit that it exceeded, if that is why it is closed.
    pub(super) overuse: OnceLock<Overuse>,
    gate: watch::Sender<Gate>,
}

impl Entry {
    pub(super) fn new(
        id: String,
        client: Option<String>,
        (program, limits): (String, SessionLimits),
        session: Session,
    ) -> Self {
        Self {
            id,
            client,
            program,
            limits,
            started_at: Timestamp::now(),
            session,
            overuse: OnceLock::new(),
            gate: watch::Sender::default(),
        }
    }

    /// Admits a call, unless the session is closing.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Inside, Error> {
        let mut ending = None;
        self.gate.send_if_modified(|gate| {
            ending = gate.ending;
            gate.calls += usize::from(ending.is_none());
            ending.is_none()
        });
        match ending {
            None => Ok(Inside(Arc::clone(self))),
            Some(reason) => Err(ended(&self.id, reason)),
        }
    }

    /// Whether this call started the close. With `only_unused` it does not start while a call is in
    /// progress.
    pub(super) fn begin_end(&self, reason: SessionEndReason, only_unused: bool) -> bool {
        self.gate.send_if_modified(|gate| {
            let begins = gate.ending.is_none() && (gate.calls == 0 || !only_unused);
            if begins {
                gate.ending = Some(reason);
            }
            begins
        })
    }

    /// Whether it is closing.
    pub(super) fn is_ending(&self) -> bool {
        self.gate.borrow().ending.is_some()
    }

    /// Waits until closing starts.
    pub(super) async fn end_begins(&self) {
        let mut gate = self.gate.subscribe();
        // The sender is owned by this entry and alive.
        let _always = gate.wait_for(|gate| gate.ending.is_some()).await;
    }

    /// Waits until no call is inside.
    pub(super) async fn unused(&self) {
        let mut gate = self.gate.subscribe();
        let _always = gate.wait_for(|gate| gate.calls == 0).await;
    }

    /// Reports the end to all waiters. A later receipt replaces an earlier one.
    pub(super) fn tell_end(&self, receipt: Receipt) {
        self.gate.send_modify(|gate| gate.receipt = Some(receipt));
    }

    /// Waits until the end is reported.
    pub(super) async fn told_end(&self) -> Option<Receipt> {
        let mut gate = self.gate.subscribe();
        let told = gate.wait_for(|gate| gate.receipt.is_some()).await;
        told.ok().and_then(|gate| gate.receipt.clone())
    }

    /// Its program is gone.
    pub(super) fn is_dead(&self) -> bool {
        self.session.pid().is_none()
    }

    /// Time since its last use; `None` while it is in use.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let is_used = self.gate.borrow().calls > 0 || self.session.busy_for().is_some();
        (!is_used).then(|| self.session.idle_for())
    }

    /// Its entry in a list.
    pub(super) fn info(&self) -> SessionInfo {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        SessionInfo {
            id: self.id.clone(),
            client: self.client.clone(),
            program: self.program.clone(),
            pid: self.session.pid(),
            busy_ms: self.session.busy_for().map(ms),
            idle_ms: self.idle_for().map_or(0, ms),
            started_at: self.started_at.to_string(),
            limits_kept_by: LimitKeepers::new(self.limits, self.session.enforced()),
        }
    }
}

/// A call in progress in a session; drop ends it.
#[derive(Debug)]
pub(super) struct Inside(Arc<Entry>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.gate.send_modify(|gate| gate.calls -= 1);
    }
}

/// The error for callers of a closed session.
pub(super) fn ended(id: &str, reason: SessionEndReason) -> Error {
    Error::Ended {
        id: id.to_owned(),
        why: why(reason).to_owned(),
    }
}

fn why(reason: SessionEndReason) -> &'static str {
    match reason {
        SessionEndReason::Asked => "it was closed",
        SessionEndReason::Reset => "it was reset",
        SessionEndReason::ProgramEnded => "its program ended",
        SessionEndReason::Idle => "it was idle",
        SessionEndReason::ClientGone => "its client disconnected or its lease expired",
        SessionEndReason::Evicted => "it was evicted to make room for another session",
        SessionEndReason::Limit => "it exceeded a resource limit",
        SessionEndReason::Shutdown => "the host is shutting down",
        SessionEndReason::StartFailed => "it failed to start",
    }
}

/// The name of a reason in event lines: as in JSON, with `_`.
pub(super) fn word(reason: SessionEndReason) -> &'static str {
    match reason {
        SessionEndReason::Asked => "asked",
        SessionEndReason::Reset => "reset",
        SessionEndReason::ProgramEnded => "program_ended",
        SessionEndReason::Idle => "idle",
        SessionEndReason::ClientGone => "client_gone",
        SessionEndReason::Evicted => "evicted",
        SessionEndReason::Limit => "limit",
        SessionEndReason::Shutdown => "shutdown",
        SessionEndReason::StartFailed => "start_failed",
    }
}

/// The name of a program in a list.
pub(super) fn name(program: &SessionProgram) -> String {
    match program {
        SessionProgram::Bash => "bash".to_owned(),
        SessionProgram::Python => "python".to_owned(),
        SessionProgram::Repl(repl) => {
            let path = repl.command.first().map_or("", String::as_str);
            path.rsplit('/').next().unwrap_or(path).to_owned()
        }
    }
}
