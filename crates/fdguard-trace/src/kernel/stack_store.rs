//! The stacks of a kernel trace, by the number that the kernel gave them. They arrive as copied
//! memory and are unwound on another thread, so a stack may not be there yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::table::RawFrame;

/// Every stack of a trace.
#[derive(Debug, Default)]
pub(crate) struct StackStore {
    stacks: Mutex<HashMap<u32, StackEntry>>,
    changed: Condvar,
    /// Stacks of goroutines that lead to the program's own code only through their creators.
    created: Mutex<HashSet<u32>>,
}

#[derive(Debug)]
enum StackEntry {
    /// It is being unwound.
    Pending,
    /// Innermost first.
    Frames(Arc<[RawFrame]>),
}

impl StackStore {
    /// A stack arrived that has to be unwound.
    pub(super) fn expect(&self, number: u32) {
        self.lock().entry(number).or_insert(StackEntry::Pending);
    }

    /// A stack was unwound, as far as possible.
    pub(super) fn insert(&self, number: u32, frames: Vec<RawFrame>) {
        let frames = StackEntry::Frames(frames.into());
        self.lock().insert(number, frames);
        self.changed.notify_all();
    }

    /// Without its creators this stack does not lead to the program's own code.
    pub(super) fn note_creators_needed(&self, number: u32) {
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        created.insert(number);
    }

    /// Whether that was noted.
    pub(super) fn needs_creators(&self, number: u32) -> bool {
        let created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        created.contains(&number)
    }

    /// Whether a stack is on its way: what refers to it should wait.
    pub(super) fn is_pending(&self, number: u32) -> bool {
        matches!(self.lock().get(&number), Some(StackEntry::Pending))
    }

    /// Waits until no stack is on its way, at most this long.
    pub(super) fn wait(&self, patience: Duration) {
        let is_pending = |one: &StackEntry| matches!(one, StackEntry::Pending);
        self.wait_while(patience, |stacks| stacks.values().any(is_pending));
    }

    /// Waits until these are unwound, at most this long.
    pub(super) fn wait_for(&self, numbers: &[u32], patience: Duration) {
        let is_pending = |stacks: &HashMap<u32, StackEntry>, number: &u32| {
            matches!(stacks.get(number), Some(StackEntry::Pending))
        };
        self.wait_while(patience, |stacks| {
            numbers.iter().any(|number| is_pending(stacks, number))
        });
    }

    fn wait_while(
        &self,
        patience: Duration,
        is_pending: impl Fn(&HashMap<u32, StackEntry>) -> bool,
    ) {
        let deadline = Instant::now() + patience;
        let mut stacks = self.lock();
        while is_pending(&stacks) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(stacks, left);
            (stacks, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Its frames, innermost first; none if it is unknown or not unwound yet.
    pub(crate) fn frames(&self, number: u32) -> Vec<RawFrame> {
        match self.lock().get(&number) {
            Some(StackEntry::Frames(frames)) => frames.to_vec(),
            _ => Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, StackEntry>> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::StackStore;
    use crate::table::RawFrame;

    #[test]
    fn a_stack_is_waited_for_and_no_longer_than_allowed() {
        let store = Arc::new(StackStore::default());
        store.expect(7);
        assert!(store.is_pending(7) && !store.is_pending(8));
        let began = Instant::now();
        store.wait(Duration::from_millis(20));
        assert!(began.elapsed() >= Duration::from_millis(20));
        let other = Arc::clone(&store);
        let unwinder = std::thread::spawn(move || other.insert(7, vec![RawFrame::Unknown(1)]));
        store.wait_for(&[7, 8], Duration::from_secs(60));
        store.wait(Duration::from_secs(60));
        assert_eq!(store.frames(7), [RawFrame::Unknown(1)]);
        assert!(store.frames(8).is_empty());
        unwinder.join().unwrap();
    }
}
