//! One number of a table: what is there now and who closed what was there before.

use std::collections::VecDeque;

use super::lifetime::{Lifetime, Past};

/// So many closed descriptors of one number are remembered.
pub(super) const MOST_PAST: usize = 6;

/// A number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// What is open there.
    pub(super) current: Option<Lifetime>,
    /// What was, the latest last.
    pub(super) past: VecDeque<Past>,
}

impl Slot {
    /// What is open at this number.
    #[must_use]
    pub fn current(&self) -> Option<&Lifetime> {
        self.current.as_ref()
    }

    /// What was there before, the latest first.
    pub fn past(&self) -> impl DoubleEndedIterator<Item = &Past> {
        self.past.iter().rev()
    }

    pub(super) fn bury(&mut self, past: Past) {
        if self.past.len() == MOST_PAST {
            self.past.pop_front();
        }
        self.past.push_back(past);
    }
}
