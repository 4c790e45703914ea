//! One at a time.

use std::cell::Cell;
use std::rc::Rc;

/// Says that only one service at a time is relieved. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct RemedyLock(Rc<Cell<bool>>);

impl RemedyLock {
    pub(super) fn acquire(&self) -> Option<Ticket> {
        let free = !self.0.replace(true);
        free.then(|| Ticket(Rc::clone(&self.0)))
    }

    /// Whether somebody is being relieved.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.0.get()
    }
}

/// The right to relieve; given back when dropped.
#[derive(Debug)]
pub(super) struct Ticket(Rc<Cell<bool>>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
