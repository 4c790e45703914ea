//! What follows a trace while it runs: log lines, the live view, progress, or nothing.

use std::time::{Duration, Instant};

use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::watching::WatchProgress;

use super::PATIENCE;
use super::follow::Follower;
use super::notes::Notes;
use super::run_loop::{RunningTrace, TraceObserver};
use super::view::Viewer;
use crate::cli::TraceArgs;

/// The observer that the arguments ask for.
pub(super) fn observer<'o>(
    args: &TraceArgs,
    settings: &'o RuleSettings,
    follower: Option<&'o mut Follower<'_>>,
) -> Box<dyn TraceObserver + 'o> {
    match follower {
        Some(follower) => Box::new(follower),
        None if args.live => Box::new(Viewer),
        None => progress(settings, args.length),
    }
}

/// Progress notes for a run of this length, if somebody reads them.
pub(super) fn progress(
    settings: &RuleSettings,
    length: Option<Duration>,
) -> Box<dyn TraceObserver + '_> {
    match Notes::new(settings, length) {
        Some(notes) => Box::new(notes),
        None => Box::new(NoObserver),
    }
}

/// An observer that ignores everything.
pub(super) struct NoObserver;

impl TraceObserver for NoObserver {
    fn observe(&mut self, running: &mut RunningTrace<'_, '_>) -> anyhow::Result<()> {
        while running.step(Instant::now() + PATIENCE)?.0 != WatchProgress::Ended {}
        Ok(())
    }
}
