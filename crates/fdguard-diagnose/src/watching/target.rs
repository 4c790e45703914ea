//! One process under watch, and the looks at it.

use std::time::Duration;

use fdguard_core::Pid;
use fdguard_core::timeline::Look;
use fdguard_probe::{Error, Probe, ProcessWatcher, WatcherTick};

use super::budget::{Budget, CostMeter};
use super::wait::Handle;

/// How many of the known descriptors are read again in addition to a listing.
const AGAIN: usize = 512;

/// How closely a look may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LookDepth {
    /// Only the count.
    Count,
    /// The count, and if that changed, the new descriptors.
    Changes,
    /// The table whatever the count is, known descriptors again, limits and children.
    Full,
}

/// A process and how it is looked at.
#[derive(Debug)]
pub struct WatchTarget<'p> {
    pub(super) id: u32,
    pub(super) watcher: ProcessWatcher<'p>,
    pub(super) handle: Handle,
    budget: Budget,
}

impl<'p> WatchTarget<'p> {
    pub(super) fn new(probe: &'p Probe, id: u32, pid: Pid) -> Result<Self, Error> {
        // In this order, so that the next read through the watcher is of the same process.
        let watcher = ProcessWatcher::new(probe, pid)?;
        Ok(Self {
            id,
            watcher,
            handle: Handle::open(pid),
            budget: Budget::default(),
        })
    }

    /// For a caller that has its own way to notice the end of the process.
    ///
    /// # Errors
    ///
    /// If the process has ended, or fdguard lacks descriptors.
    pub fn without_handle(probe: &'p Probe, pid: Pid) -> Result<Self, Error> {
        Ok(Self {
            id: 0,
            watcher: ProcessWatcher::new(probe, pid)?,
            handle: Handle::none(),
            budget: Budget::default(),
        })
    }

    /// The process with what can be observed of it.
    #[must_use]
    pub fn watcher(&self) -> &ProcessWatcher<'p> {
        &self.watcher
    }

    /// Looks exactly this closely, for a caller that divides one budget among many processes.
    ///
    /// # Errors
    ///
    /// If the process has ended, may no longer be read, or fdguard lacks resources.
    pub fn look(&mut self, now: Duration, depth: LookDepth) -> Result<Look, Error> {
        let mut tick = match depth {
            LookDepth::Count => self.watcher.glance()?,
            LookDepth::Changes => self.watcher.tick()?,
            LookDepth::Full => self.listed()?,
        };
        if tick.listed {
            let again = self.watcher.verify(AGAIN)?;
            absorb(&mut tick, again);
        }
        if depth == LookDepth::Full {
            // Forces a look around.
            self.budget = Budget::default();
        }
        Ok(self.finish(now, tick))
    }

    /// Looks as closely as the budget allows.
    pub(super) fn read(&mut self, now: Duration) -> Result<Look, Error> {
        let meter = CostMeter::start();
        let is_full = self.budget.is_full_due(now);
        let mut tick = if is_full {
            self.listed()?
        } else if self.budget.may_list(now) {
            self.watcher.tick()?
        } else {
            self.watcher.glance()?
        };
        if tick.listed {
            let again = self.watcher.verify(AGAIN)?;
            absorb(&mut tick, again);
            self.budget.listed(now, meter.cost());
        }
        if is_full {
            self.budget.looked_fully(now, meter.cost());
        }
        Ok(self.finish(now, tick))
    }

    /// Takes the last look, at everything.
    pub(super) fn last_look(&mut self, now: Duration) -> Result<Look, Error> {
        let mut tick = self.listed()?;
        if tick.listed {
            let again = self.watcher.verify(usize::MAX / 2)?;
            absorb(&mut tick, again);
        }
        self.budget = Budget::default();
        Ok(self.finish(now, tick))
    }

    /// Lists the descriptors if allowed, else counts them.
    fn listed(&mut self) -> Result<WatcherTick, Error> {
        if self.watcher.tier() == fdguard_core::Tier::Radar {
            return self.watcher.glance();
        }
        self.watcher.list()
    }

    fn finish(&mut self, now: Duration, tick: WatcherTick) -> Look {
        let mut look = Look {
            at: seconds(now),
            count: Some(tick.count),
            table: tick.change(),
            ..Look::default()
        };
        // A starting program opens files: its table was just listed.
        if look.table.is_some() || self.budget.is_name_due(now) {
            let meter = CostMeter::start();
            look.process = self.watcher.renamed().map(Box::new);
            self.budget.read_name(now, meter.cost());
        }
        if self.budget.is_around_due(now) {
            let meter = CostMeter::start();
            self.watcher.surroundings(&mut look);
            self.budget.looked_around(now, meter.cost());
        }
        look
    }
}

/// Millisecond precision is enough, and shorter in a recording.
fn seconds(now: Duration) -> f64 {
    (now.as_secs_f64() * 1000.0).round() / 1000.0
}

fn absorb(tick: &mut WatcherTick, again: WatcherTick) {
    tick.opened.extend(again.opened);
    tick.closed.extend(again.closed);
    tick.changed.extend(again.changed);
}
