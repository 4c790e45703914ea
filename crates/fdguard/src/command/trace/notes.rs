//! Progress of a run of known length. The program uses the terminal, so only few, whole lines are
//! printed.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::watching::WatchProgress;

use super::PATIENCE;
use super::run_loop::{RunningTrace, TraceObserver, notify};
use crate::progress;

/// The time of the first line, and the interval after it.
const FIRST: Duration = Duration::from_secs(2);
const EVERY: Duration = Duration::from_secs(10);

/// Progress notes for a person at a terminal who waits for the run to end.
#[derive(Debug)]
pub(super) struct Notes<'s> {
    settings: &'s RuleSettings,
    length: Duration,
}

impl<'s> Notes<'s> {
    /// Notes for a run of this length; `None` if it is short or stderr is not a terminal.
    pub(super) fn new(settings: &'s RuleSettings, length: Option<Duration>) -> Option<Self> {
        let length = length.filter(|length| *length > FIRST)?;
        std::io::stderr()
            .is_terminal()
            .then_some(Self { settings, length })
    }
}

impl TraceObserver for Notes<'_> {
    fn observe(&mut self, running: &mut RunningTrace<'_, '_>) -> anyhow::Result<()> {
        let mut due = Instant::now() + FIRST;
        while running.step(due.min(Instant::now() + PATIENCE))?.0 != WatchProgress::Ended {
            if Instant::now() >= due {
                let watch = running.live().watch();
                notify(&progress::of_watch(watch, self.settings, Some(self.length)));
                due = Instant::now() + EVERY;
            }
        }
        Ok(())
    }
}
