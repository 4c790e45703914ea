//! What a process held over time, bounded in memory for weeks of watching.
//!
//! A [`Timeline`] takes in one [`Look`] after the other and keeps, for all descriptors, for each
//! family of classes and for each target, how many there were and how many of them had grown old.
//! [`judge`](crate::judge) draws the conclusions.

mod grid;
mod groups;
mod live;
mod look;
mod track;

pub use grid::{BUCKETS, Grid, OLD, RINGS, YOUNG};
pub use groups::{GroupKey, TrackGroup};
pub use live::{LiveFd, LiveFds};
pub use look::{ChildCount, Look, LookChange, Sighting};
pub use track::{Bucket, BucketSeries, PastBuckets, Ring, Track};

use groups::Groups;
use live::Place;

use crate::snapshot::{Ceilings, Limits};
use crate::{Class, Fd};

/// The history of one process, from its first look on.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    grid: Grid,
    total: Track,
    groups: Groups,
    live: LiveFds,
    first: Option<u64>,
    last: Option<u64>,
    at: f64,
    began: Option<f64>,
    looks: u64,
    listed: bool,
    listings: u64,
    limits: Limits,
    host: Ceilings,
    families: Option<(ChildCount, ChildCount)>,
    watches: Option<((f64, u64), (f64, u64))>,
}

impl Timeline {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one look. A look that read neither the count nor the table is not a tick:
    /// unobserved time is not time in which nothing happened.
    pub fn observe(&mut self, look: &Look) {
        if look.count.is_none() && look.table.is_none() {
            return self.note_surroundings(look);
        }
        self.began.get_or_insert(look.at);
        self.at = look.at;
        self.looks += 1;
        if self.is_stuck(look) {
            return self.note_surroundings(look);
        }
        let rolled = self.grid.tick(look.at);
        let tick = self.grid.ticks();
        self.note_surroundings(look);
        if let Some(change) = &look.table {
            self.apply(change, look.at);
        }
        let (total, groups) = (&mut self.total, &mut self.groups);
        self.live.grow(tick, |held, level| {
            total.reach(level);
            groups.reach(held, level);
        });
        // Without a list there is only the count.
        if !self.listed
            && let Some(count) = look.count
        {
            self.total.set(count);
        }
        self.total.sample(&rolled, tick);
        self.groups.sample(&rolled, tick);
    }

    /// Whether the process has reached its limit during the watch, and nothing has changed. If it
    /// cannot open anything, it does not show whether it would: without this, a leak that has
    /// reached the limit would soon look like a pool that is full.
    fn is_stuck(&self, look: &Look) -> bool {
        let has_changed = look.table.as_ref().is_some_and(|table| !table.is_empty());
        if has_changed || look.count != self.last {
            return false;
        }
        let limit = look.limits.unwrap_or(self.limits).soft;
        let has_risen = |limit: &u64| self.first.is_some_and(|first| first < *limit);
        limit
            .filter(has_risen)
            .is_some_and(|limit| self.is_full_below(limit))
    }

    fn is_full_below(&self, limit: u64) -> bool {
        if !self.listed {
            return self.last.is_some_and(|count| count >= limit);
        }
        // The table is counted only if it could be full.
        let below = || {
            self.live
                .iter()
                .take_while(|(fd, _)| u64::from(*fd) < limit)
        };
        self.live.len() as u64 >= limit && below().count() as u64 >= limit
    }

    fn note_surroundings(&mut self, look: &Look) {
        if look.count.is_some() {
            self.last = look.count;
            self.first = self.first.or(look.count);
        }
        self.limits = look.limits.unwrap_or(self.limits);
        if let Some(host) = look.host {
            self.host = host;
            let used = host.inotify_watches.used;
            let now = used.map(|used| (look.at, used));
            self.watches = match (self.watches, now) {
                (Some((first, _)), Some(now)) => Some((first, now)),
                (None, Some(now)) => Some((now, now)),
                (known, None) => known,
            };
        }
        if let Some(family) = look.family {
            let first = self.families.map_or(family, |(first, _)| first);
            self.families = Some((first, family));
        }
    }

    fn apply(&mut self, change: &LookChange, at: f64) {
        for fd in &change.closed {
            self.close(*fd);
        }
        let tick = self.grid.ticks();
        if !self.listed {
            // Now they are counted one by one.
            self.total.set(0);
        }
        // The first list shows what was there before: its opening times are unknown.
        let born = self.listed.then_some((tick, at));
        for sighting in &change.opened {
            self.close(sighting.fd);
            self.open(sighting, born);
        }
        for sighting in &change.changed {
            self.rename(sighting);
        }
        self.listed = true;
        self.listings += 1;
    }

    fn open(&mut self, sighting: &Sighting, born: Option<(u64, f64)>) {
        let place = self
            .groups
            .place(&sighting.class, sighting.group(), self.grid.ticks());
        let what = (sighting.fd, sighting.class.clone(), sighting.target.clone());
        let level = self.live.open(what, place, born);
        for level in 0..=level {
            self.total.reach(level);
            self.groups.reach_at(place, level);
        }
    }

    fn close(&mut self, fd: Fd) {
        if let Some(held) = self.live.close(fd) {
            self.total.lose(held.level);
            self.groups.lose(&held);
        }
    }

    /// The same descriptor looks different now. It stays in its cohort, unless it is so young that
    /// it may have been seen incomplete: a socket before it was connected, a file before it was
    /// named.
    fn rename(&mut self, sighting: &Sighting) {
        let tick = self.grid.ticks();
        let Some(held) = self.live.get_mut(sighting.fd) else {
            return self.open(sighting, Some((tick, self.at)));
        };
        held.class = sighting.class.clone();
        held.target = sighting.target.clone();
        if held.level == 0 {
            let old = Place {
                family: held.family,
                group: held.group,
            };
            let new = self.groups.place(&sighting.class, sighting.group(), tick);
            (held.family, held.group) = (new.family, new.group);
            self.groups.release(old, 0);
            self.groups.reach_at(new, 0);
        }
    }

    /// The time axis.
    #[must_use]
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// All descriptors together.
    #[must_use]
    pub fn total(&self) -> &Track {
        &self.total
    }

    /// The descriptors that are open now.
    #[must_use]
    pub fn live(&self) -> &LiveFds {
        &self.live
    }

    /// Families of classes, and targets within them.
    pub fn groups(&self) -> impl Iterator<Item = (usize, &TrackGroup)> {
        self.groups.iter()
    }

    /// The live descriptors of a group.
    pub fn members(&self, group: usize) -> impl Iterator<Item = (Fd, &LiveFd)> {
        self.live
            .iter()
            .filter(move |(_, held)| held.family == group || held.group == Some(group))
    }

    /// Looks so far.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// Looks that listed the table.
    #[must_use]
    pub fn listings(&self) -> u64 {
        self.listings
    }

    /// Whether the descriptors were ever listed.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.listed
    }

    /// The count at the first look that read it.
    #[must_use]
    pub fn baseline(&self) -> Option<u64> {
        self.first
    }

    /// The count at the latest look that read it.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        self.last
    }

    /// The time of the latest look, in seconds.
    #[must_use]
    pub fn now(&self) -> f64 {
        self.at
    }

    /// Seconds watched.
    #[must_use]
    pub fn watched(&self) -> f64 {
        self.began.map_or(0.0, |began| self.at - began)
    }

    /// Limits as last read.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Limits of the host as last read.
    #[must_use]
    pub fn host(&self) -> &Ceilings {
        &self.host
    }

    /// inotify watches of the user at the first reading and at the last, each with its time.
    #[must_use]
    pub fn inotify_watches(&self) -> Option<((f64, u64), (f64, u64))> {
        self.watches
    }

    /// Children at the first count and at the last.
    #[must_use]
    pub fn families(&self) -> Option<(ChildCount, ChildCount)> {
        self.families
    }

    /// The highest number in use.
    #[must_use]
    pub fn highest(&self) -> Option<Fd> {
        self.live.highest()
    }

    /// How many descriptors of a class there are now.
    #[must_use]
    pub fn count_of(&self, wanted: impl Fn(&Class, &LiveFd) -> bool) -> u64 {
        let matching = self
            .live
            .iter()
            .filter(|(_, held)| wanted(&held.class, held));
        matching.count() as u64
    }
}

#[cfg(test)]
mod tests;
