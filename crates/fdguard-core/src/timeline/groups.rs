//! The tracks of a timeline: one for each family of classes, one for each target.

use std::collections::HashMap;

use super::grid::RINGS;
use super::live::{LiveFd, Place};
use super::track::Track;
use crate::{Class, TcpState, Text};

/// More targets than this are counted in their family alone.
const MOST_TARGETS: usize = 128;

/// What a track counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The family: a socket that changes state or a file that is deleted stays in it.
    pub family: Class,
    /// The target, numbers collapsed; absent for the family as a whole.
    pub target: Option<Text>,
}

/// A track and what it counts.
#[derive(Clone, Debug)]
pub struct TrackGroup {
    /// What it counts.
    pub key: GroupKey,
    /// How many, over time.
    pub track: Track,
}

/// Every track, families and targets in one list.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    list: Vec<TrackGroup>,
    index: HashMap<GroupKey, usize>,
    targets: usize,
}

/// Listening sockets are not connections; sockets that are still connecting become connections.
fn family(class: &Class) -> Class {
    match class {
        Class::Tcp(TcpState::Listen) => class.clone(),
        _ => class.family(),
    }
}

impl Groups {
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &TrackGroup)> {
        self.list.iter().enumerate()
    }

    /// Where a descriptor is counted.
    pub(super) fn place(&mut self, class: &Class, target: &Text, tick: u64) -> Place {
        let family = family(class);
        let whole = GroupKey {
            family: family.clone(),
            target: None,
        };
        let one = GroupKey {
            family,
            target: Some(target.clone()),
        };
        let family = self.find_or_make(whole, tick);
        let group = match self.index.get(&one) {
            Some(index) => Some(*index),
            None if self.targets < MOST_TARGETS => {
                self.targets += 1;
                Some(self.find_or_make(one, tick))
            }
            None => self.take_over(one, tick),
        };
        // Otherwise an empty track could be reassigned before its first member is counted.
        for index in group.into_iter().chain([family]) {
            self.list[index].track.touched = tick;
        }
        Place { family, group }
    }

    fn find_or_make(&mut self, key: GroupKey, tick: u64) -> usize {
        if let Some(index) = self.index.get(&key) {
            return *index;
        }
        let index = self.list.len();
        self.index.insert(key.clone(), index);
        let mut track = Track::default();
        track.touched = tick;
        self.list.push(TrackGroup { key, track });
        index
    }

    /// Reassigns the slot of the target that has been unused for longest.
    fn take_over(&mut self, key: GroupKey, tick: u64) -> Option<usize> {
        let unused = self.list.iter().enumerate().filter(|(_, group)| {
            group.key.target.is_some() && group.track.count() == 0 && group.track.touched < tick
        });
        let (index, _) = unused.min_by_key(|(_, group)| group.track.touched)?;
        self.index.remove(&self.list[index].key);
        self.index.insert(key.clone(), index);
        self.list[index] = TrackGroup {
            key,
            track: Track::default(),
        };
        Some(index)
    }

    fn tracks(&mut self, place: Place, mut act: impl FnMut(&mut Track)) {
        act(&mut self.list[place.family].track);
        if let Some(group) = place.group {
            act(&mut self.list[group].track);
        }
    }

    pub(super) fn reach_at(&mut self, place: Place, level: usize) {
        self.tracks(place, |track| track.reach(level));
    }

    pub(super) fn release(&mut self, place: Place, level: usize) {
        self.tracks(place, |track| track.release(level));
    }

    pub(super) fn reach(&mut self, held: &LiveFd, level: usize) {
        self.reach_at(place_of(held), level);
    }

    pub(super) fn lose(&mut self, held: &LiveFd) {
        self.tracks(place_of(held), |track| track.lose(held.level));
    }

    pub(super) fn sample(&mut self, rolled: &[bool; RINGS], tick: u64) {
        for group in &mut self.list {
            group.track.sample(rolled, tick);
        }
    }
}

fn place_of(held: &LiveFd) -> Place {
    Place {
        family: held.family,
        group: held.group,
    }
}
