//! Only one remedy at a time.

use std::cell::Cell;
use std::rc::Rc;

/// Ensures that only one service at a time has a remedy in progress. Clones share the lock.
#[derive(Clone, Debug, Default)]
pub struct RemedyLock(Rc<Cell<bool>>);

impl RemedyLock {
    pub(super) fn acquire(&self) -> Option<Ticket> {
        let free = !self.0.replace(true);
        free.then(|| Ticket(Rc::clone(&self.0)))
    }

    /// Whether a remedy is in progress.
    pub(super) fn is_taken(&self) -> bool {
        self.0.get()
    }
}

/// The right to run a remedy; released when dropped.
#[derive(Debug)]
pub(super) struct Ticket(Rc<Cell<bool>>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.set(false);
    }
}
