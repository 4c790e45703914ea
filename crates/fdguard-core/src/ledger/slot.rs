//! One number of a table: the open descriptor and the closed ones before it.

use std::collections::VecDeque;

use super::lifetime::{ClosedFd, FdLifetime};

/// The most closed descriptors of one number that are remembered. A low number is reused often:
/// while a thread slept for 6 ms after it lost its socket, a busy database beside it used the
/// number ten times.
pub(super) const MOST_PAST: usize = 16;

/// A number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdSlot {
    /// What is open there.
    pub(super) current: Option<FdLifetime>,
    /// The closed ones, the latest last.
    pub(super) past: VecDeque<ClosedFd>,
    /// A descriptor was open there about which nothing else is known.
    pub(super) was_open: bool,
}

impl FdSlot {
    /// What is open at this number.
    #[must_use]
    pub fn current(&self) -> Option<&FdLifetime> {
        self.current.as_ref()
    }

    /// The closed ones, the latest first.
    pub fn past(&self) -> impl DoubleEndedIterator<Item = &ClosedFd> {
        self.past.iter().rev()
    }

    /// Whether anything is or was there.
    pub(super) fn was_open(&self) -> bool {
        self.was_open || self.current.is_some() || !self.past.is_empty()
    }

    pub(super) fn remember(&mut self, past: ClosedFd) {
        if self.past.len() == MOST_PAST {
            self.past.pop_front();
        }
        self.past.push_back(past);
    }
}
