//! Events of calls: one for each end, and one for each abort.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::abort::AbortReason;
use super::state::CallPhase;

/// Receives events. It is called by the acting thread without a lock held, and should not block.
pub type CallSink = Arc<dyn Fn(&CallEvent) + Send + Sync>;

/// One thing that happened. [`Display`](fmt::Display) is the log line, its field names stay the
/// same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallEvent {
    /// What happened.
    pub event: CallEventKind,
    /// Severity.
    pub level: EventLevel,
    /// Which call; `null` if the event is about the caller itself.
    pub call: Option<String>,
    /// The call's phase: for an abort, at that moment; for an end, before it.
    pub phase: CallPhase,
    /// Sockets that an abort shut down; `null` if there was none.
    pub tcp_force_closed: Option<u32>,
    /// `stranger_thread` or `stranger_task`: another thread or task aborted, and the owner closed
    /// afterwards.
    pub deferred_close: Option<&'static str>,
    /// The acting thread.
    pub by: ThreadLabel,
    /// The thread that aborted, for an end.
    pub aborted_by: Option<ThreadLabel>,
    /// Why it was aborted.
    pub reason: Option<AbortReason>,
    /// The code of the failure.
    pub failure: Option<&'static str>,
    /// `kept` for another call, `closed`, or `null` if there was none.
    pub connection: Option<&'static str>,
    /// Milliseconds since the call started, or since the close of the caller was requested.
    pub ms: f64,
    /// A note for people.
    pub note: Option<&'static str>,
}

impl CallEvent {
    pub(super) fn new(
        event: CallEventKind,
        call: Option<String>,
        phase: CallPhase,
        ms: f64,
    ) -> Self {
        Self {
            event,
            level: EventLevel::Info,
            call,
            phase,
            tcp_force_closed: None,
            deferred_close: None,
            by: ThreadLabel::here(),
            aborted_by: None,
            reason: None,
            failure: None,
            connection: None,
            ms,
            note: None,
        }
    }
}

impl fmt::Display for CallEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event={} level={}", self.event.word(), self.level.word())?;
        if let Some(call) = &self.call {
            write!(f, " call={call} phase={}", self.phase)?;
        }
        if let Some(count) = self.tcp_force_closed {
            write!(f, " tcp_force_closed={count}")?;
        }
        if let Some(who) = self.deferred_close {
            write!(f, " deferred_close={who}")?;
        }
        write!(f, " by={}", self.by)?;
        if let Some(who) = &self.aborted_by {
            write!(f, " aborted_by={who}")?;
        }
        if let Some(reason) = self.reason {
            write!(f, " reason={reason}")?;
        }
        if let Some(failure) = self.failure {
            write!(f, " failure={failure}")?;
        }
        if let Some(connection) = self.connection {
            write!(f, " connection={connection}")?;
        }
        write!(f, " ms={:.3}", self.ms)?;
        match self.note {
            Some(note) => write!(f, " note={note:?}"),
            None => Ok(()),
        }
    }
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CallEventKind {
    /// A call was aborted. Its owner will close it.
    Aborted,
    /// The owner ended a call.
    Ended,
    /// A caller was closed while calls were in flight: the last of them does it.
    CloseParked,
    /// A caller was closed: it has no connections left.
    CallerClosed,
}

impl CallEventKind {
    fn word(self) -> &'static str {
        match self {
            Self::Aborted => "aborted",
            Self::Ended => "ended",
            Self::CloseParked => "close-parked",
            Self::CallerClosed => "caller-closed",
        }
    }
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventLevel {
    /// As it should be.
    Info,
    /// An abort found no socket to shut.
    Warning,
}

impl EventLevel {
    fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
        }
    }
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadLabel {
    /// `null` when it has none.
    pub name: Option<String>,
    /// The kernel's number.
    pub id: i32,
}

impl ThreadLabel {
    /// The calling thread.
    #[must_use]
    pub fn here() -> Self {
        Self {
            name: std::thread::current().name().map(str::to_owned),
            id: rustix::thread::gettid().as_raw_nonzero().get(),
        }
    }
}

impl fmt::Display for ThreadLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
        match &self.name {
            Some(name) => {
                let plain: String = name
                    .chars()
                    .map(|c| if is_plain(c) { c } else { '_' })
                    .collect();
                write!(f, "{plain}/{}", self.id)
            }
            None => write!(f, "{}", self.id),
        }
    }
}
