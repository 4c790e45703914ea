//! Descriptors that the program stores with fdguard across restarts.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::message::NotifyMessage;
use super::same::is_same_file;
use crate::plan::InheritedFd;

/// The default number of stored descriptors.
pub const MOST: usize = 128;
/// The name of unnamed descriptors.
const UNNAMED: &str = "stored";

/// The store of one service.
#[derive(Debug)]
pub struct FdStore {
    entries: Vec<Entry>,
    most: usize,
}

#[derive(Debug)]
struct Entry {
    name: String,
    fd: Arc<OwnedFd>,
    /// Dropped when it hangs up.
    polled: bool,
}

/// What happened to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// One more was stored.
    Stored {
        /// Its name.
        name: String,
    },
    /// It was already stored, under this name.
    Merged {
        /// Its name.
        name: String,
    },
    /// The store is full: it was closed.
    Full {
        /// Its name.
        name: String,
    },
    /// The program removed those with this name.
    Removed {
        /// Their name.
        name: String,
        /// How many there were.
        count: usize,
    },
    /// The other side hung up: it was closed.
    HungUp {
        /// Its name.
        name: String,
    },
}

impl Default for FdStore {
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl FdStore {
    /// An empty store for this many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self {
            entries: Vec::new(),
            most,
        }
    }

    /// Does what a message asks. Attached descriptors are closed if the message does not ask to
    /// store them.
    pub fn hear(&mut self, message: &NotifyMessage, fds: Vec<OwnedFd>) -> Vec<StoreChange> {
        // Both in one message makes no sense; systemd also removes.
        if message.store_remove {
            return self.remove(message.name.as_deref()).into_iter().collect();
        }
        if !message.store {
            return Vec::new();
        }
        let name = message.name.as_deref().unwrap_or(UNNAMED);
        fds.into_iter()
            .map(|fd| self.add(name, fd, message.poll))
            .collect()
    }

    fn add(&mut self, name: &str, fd: OwnedFd, polled: bool) -> StoreChange {
        let known = self
            .entries
            .iter()
            .find(|entry| is_same_file(entry.fd.as_fd(), fd.as_fd()));
        if let Some(known) = known {
            let name = known.name.clone();
            return StoreChange::Merged { name };
        }
        let name = name.to_owned();
        if self.entries.len() >= self.most {
            return StoreChange::Full { name };
        }
        self.entries.push(Entry {
            name: name.clone(),
            fd: Arc::new(fd),
            polled,
        });
        StoreChange::Stored { name }
    }

    fn remove(&mut self, name: Option<&str>) -> Option<StoreChange> {
        // Without a name nothing is removed: removing everything by mistake would be worse.
        let name = name?.to_owned();
        let before = self.entries.len();
        self.entries.retain(|entry| entry.name != name);
        let count = before - self.entries.len();
        Some(StoreChange::Removed { name, count })
    }

    /// Descriptors to watch for hang-up; wait for nothing else on them.
    pub fn polled(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let polled = self.entries.iter().filter(|entry| entry.polled);
        polled.map(|entry| entry.fd.as_fd())
    }

    /// Drops descriptors that hung up; never waits.
    pub fn poll(&mut self) -> Vec<StoreChange> {
        let polled: Vec<usize> = (0..self.entries.len())
            .filter(|at| self.entries[*at].polled)
            .collect();
        let mut list: Vec<PollFd<'_>> = polled
            .iter()
            .map(|at| PollFd::new(&self.entries[*at].fd, PollFlags::empty()))
            .collect();
        if !poll(&mut list, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
            return Vec::new();
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        let mut lost: Vec<usize> = polled
            .into_iter()
            .zip(&list)
            .filter(|(_, fd)| fd.revents().intersects(gone))
            .map(|(at, _)| at)
            .collect();
        drop(list);
        lost.reverse();
        let forget = |at| self.entries.remove(at).name;
        let mut changes: Vec<StoreChange> = lost
            .into_iter()
            .map(forget)
            .map(|name| StoreChange::HungUp { name })
            .collect();
        changes.reverse();
        changes
    }

    /// Descriptors for the next start, with names; the stored ones stay stored.
    #[must_use]
    pub fn handed(&self) -> Vec<InheritedFd> {
        let hand = |entry: &Entry| InheritedFd {
            fd: Arc::clone(&entry.fd),
            name: Some(entry.name.clone()),
        };
        self.entries.iter().map(hand).collect()
    }

    /// How many are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether none is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
