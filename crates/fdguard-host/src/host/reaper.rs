//! Closes idle sessions, and dead ones whose end was missed.

use std::sync::Arc;

use fdguard_core::log_event::LogEvent;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::Inner;
use super::entry::Entry;
use crate::receipt::SessionEndReason;

/// Activity of the idle-session reaper.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReaperHealth {
    /// Time of the last run, RFC 3339; `null` before the first run.
    pub last_run_at: Option<String>,
    /// Number of runs.
    pub runs: u64,
    /// Number of sessions it closed.
    pub closed: u64,
}

/// Why a session is to be closed now.
fn verdict(entry: &Entry, inner: &Inner) -> Option<SessionEndReason> {
    let idle = entry.idle_for()?;
    if entry.is_dead() {
        return Some(SessionEndReason::ProgramEnded);
    }
    (idle >= inner.options.idle_after).then_some(SessionEndReason::Idle)
}

impl Inner {
    /// Checks periodically, for as long as the host runs.
    pub(super) async fn reap_idle(self: Arc<Self>) {
        let every = self.options.reap_every;
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.stopped.cancelled() => return,
            }
            self.reap_once();
            self.reconcile_now().await;
        }
    }

    fn reap_once(self: &Arc<Self>) {
        let entries: Vec<_> = self.table().entries().cloned().collect();
        let looked = entries.len();
        let mut closed = 0;
        for entry in entries {
            // A call that arrives now is either accepted or finds the session closed.
            if let Some(reason) = verdict(&entry, self) {
                closed += u64::from(self.begin_end_unused(&entry, reason));
            }
        }
        self.reaper.send_modify(|reaper| {
            reaper.runs += 1;
            reaper.closed += closed;
            reaper.last_run_at = Some(Timestamp::now().to_string());
        });
        if closed > 0 {
            let event = LogEvent::new("reap").with("sessions", looked);
            self.tell(event.with("closed", closed));
        }
    }
}
