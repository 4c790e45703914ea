//! The live descriptors of a process: since when each one is open, and which ages it has reached.

use std::collections::{BTreeMap, VecDeque};

use super::grid::{AGES, age};
use crate::{Class, Fd, Text};

/// A descriptor that is open now.
#[derive(Clone, Debug)]
pub struct LiveFd {
    /// Its class now.
    pub class: Class,
    /// What it refers to now.
    pub target: Text,
    /// When it was first seen, in seconds; absent for those from before the watch.
    pub since: Option<f64>,
    /// Where it is counted: its family, and its target if that has its own track.
    pub(super) family: usize,
    pub(super) group: Option<usize>,
    /// How many ages it has passed.
    pub(super) level: usize,
    /// Distinguishes it from earlier descriptors with this number.
    serial: u64,
}

impl LiveFd {
    /// The groups that it is counted in.
    pub(crate) fn groups(&self) -> impl Iterator<Item = usize> {
        [Some(self.family), self.group].into_iter().flatten()
    }
}

/// A descriptor that waits for its next age.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    born: u64,
    fd: Fd,
    serial: u64,
}

/// Every open descriptor, and the order in which they reach ages.
#[derive(Clone, Debug, Default)]
pub struct LiveFds {
    table: BTreeMap<Fd, LiveFd>,
    queues: [VecDeque<Waiting>; AGES],
    serial: u64,
}

/// Where a new descriptor is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) family: usize,
    pub(super) group: Option<usize>,
}

impl LiveFds {
    /// The descriptors, by number.
    pub fn iter(&self) -> impl Iterator<Item = (Fd, &LiveFd)> {
        self.table.iter().map(|(fd, held)| (*fd, held))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The highest number that is the program's.
    #[must_use]
    pub fn highest(&self) -> Option<Fd> {
        let mut own = self.table.iter().rev();
        own.find(|(_, held)| !held.class.is_of_fdguard())
            .map(|(fd, _)| *fd)
    }

    /// How many wait for an age, including closed ones that were not yet removed.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    pub(super) fn get_mut(&mut self, fd: Fd) -> Option<&mut LiveFd> {
        self.table.get_mut(&fd)
    }

    /// Adds a descriptor. Those from before the watch have no age: they count as old.
    pub(super) fn open(
        &mut self,
        (fd, class, target): (Fd, Class, Text),
        place: Place,
        born: Option<(u64, f64)>,
    ) -> usize {
        self.serial += 1;
        let level = if born.is_some() { 0 } else { AGES };
        let held = LiveFd {
            class,
            target,
            since: born.map(|(_, at)| at),
            family: place.family,
            group: place.group,
            level,
            serial: self.serial,
        };
        self.table.insert(fd, held);
        if let Some((born, _)) = born {
            self.queues[0].push_back(Waiting {
                born,
                fd,
                serial: self.serial,
            });
        }
        level
    }

    pub(super) fn close(&mut self, fd: Fd) -> Option<LiveFd> {
        self.table.remove(&fd)
    }

    /// Advances time: calls `reached` for each descriptor that reached an age.
    pub(super) fn grow(&mut self, tick: u64, mut reached: impl FnMut(&LiveFd, usize)) {
        for index in 0..AGES {
            while let Some(first) = self.queues[index].front().copied() {
                if first.born + age(index) > tick {
                    break;
                }
                self.queues[index].pop_front();
                let Some(held) = self.table.get_mut(&first.fd) else {
                    continue;
                };
                if held.serial != first.serial {
                    continue;
                }
                held.level = index + 1;
                reached(held, index + 1);
                if let Some(next) = self.queues.get_mut(index + 1) {
                    next.push_back(first);
                }
            }
        }
    }
}
