//! Counts by the site that opened: opened, closed, left.

use std::collections::BTreeMap;

use crate::dependency_path::through;
use crate::event::{StackId, Tid};
use crate::origin::{Culprit, Origin, Stack};

/// The most stacks that one table counts. Those with nothing open are dropped first.
const MOST_PLACES: usize = 65_536;

const NANOS: f64 = 1e9;

/// The counts of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) opened: u64,
    pub(super) closed: u64,
}

impl Count {
    pub(super) fn live(self) -> u64 {
        self.opened.saturating_sub(self.closed)
    }
}

/// The counts of every site. A missing stack counts as a site, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    places: BTreeMap<Option<StackId>, Count>,
}

impl Counts {
    pub(super) fn open(&mut self, place: Option<StackId>) {
        if self.places.len() >= MOST_PLACES && !self.places.contains_key(&place) {
            self.places.retain(|_, count| count.live() > 0);
        }
        self.places.entry(place).or_default().opened += 1;
    }

    pub(super) fn close(&mut self, place: Option<StackId>) {
        self.places.entry(place).or_default().closed += 1;
    }

    /// Moves one from this site to that.
    pub(super) fn reassign(&mut self, from: Option<StackId>, to: Option<StackId>) {
        self.open(to);
        if let Some(count) = self.places.get_mut(&from) {
            count.opened = count.opened.saturating_sub(1);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<StackId>, Count)> {
        self.places.iter().map(|(place, count)| (*place, *count))
    }
}

/// What one site has opened, before its stack is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The site; absent for what was opened without a stack or unseen.
    pub stack: Option<StackId>,
    /// How many are open.
    pub live: u64,
    /// How many were opened, or came from the parent.
    pub opened: u64,
    /// How many of them were closed.
    pub closed: u64,
    /// When the oldest open one was opened.
    pub oldest: Option<u64>,
    /// The thread that opened it.
    pub thread: Option<Tid>,
}

impl Tally {
    /// The same with its stack, at this time of the monotonic clock.
    #[must_use]
    pub fn origin(&self, now: u64, resolve: &dyn Fn(StackId) -> Stack) -> Origin {
        let stack = self.stack.map(resolve).unwrap_or_default();
        Origin {
            culprit: Culprit::from_stack(&stack),
            leaking_caller: None,
            through: through(&stack),
            partly: false,
            stack,
            thread: self.thread,
            live: self.live,
            opened: self.opened,
            closed: self.closed,
            oldest_age_seconds: self.oldest.map(|at| seconds(now.saturating_sub(at))),
        }
    }
}

fn seconds(nanos: u64) -> f64 {
    crate::count::as_f64(nanos) / NANOS
}
