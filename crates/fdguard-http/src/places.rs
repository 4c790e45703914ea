//! Connection slots. An authenticated connection keeps its slot; among the others, the newest
//! replaces the oldest.
//!
//! A slot costs nothing to take: a client without the token could hold and renew all of them. A
//! client with the token needs its slot only until its first request has arrived.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

/// All places.
#[derive(Debug)]
pub struct Places {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Unauthenticated connections, the oldest first.
    anonymous: BTreeMap<u64, CancellationToken>,
    /// Those that have shown the token.
    known: usize,
}

/// One slot, until it is dropped.
#[derive(Debug)]
pub struct ConnectionPlace {
    number: u64,
    places: Arc<Places>,
    evicted: CancellationToken,
}

/// All of them belong to callers that have shown the token.
#[derive(Debug, PartialEq, Eq)]
pub struct AllTaken;

impl Places {
    /// This many.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            state: Mutex::default(),
        })
    }

    /// Takes a slot; if there is none, the oldest unauthenticated connection is evicted. `most` may
    /// be lowered if descriptors are scarce.
    pub fn acquire(self: &Arc<Self>, most: usize) -> Result<ConnectionPlace, AllTaken> {
        let mut state = self.lock();
        while state.known + state.anonymous.len() >= most.min(self.most) {
            let (_, oldest) = state.anonymous.pop_first().ok_or(AllTaken)?;
            oldest.cancel();
        }
        let number = state.next;
        state.next += 1;
        let evicted = CancellationToken::new();
        state.anonymous.insert(number, evicted.clone());
        Ok(ConnectionPlace {
            number,
            places: Arc::clone(self),
            evicted,
        })
    }

    /// The number of slots in use.
    #[cfg(test)]
    fn taken(&self) -> usize {
        let state = self.lock();
        state.known + state.anonymous.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPlace {
    /// Its caller has shown the token: from now on it stays.
    pub fn know(&self) {
        let mut state = self.places.lock();
        if state.anonymous.remove(&self.number).is_some() {
            state.known += 1;
        }
    }

    /// Waits until the slot must be released.
    pub async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        let was_anonymous = state.anonymous.remove(&self.number).is_some();
        if !was_anonymous && !self.evicted.is_cancelled() {
            state.known -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AllTaken, Places};

    #[test]
    fn the_oldest_that_has_shown_nothing_gives_way() {
        let places = Places::new(3);
        let take = || places.acquire(usize::MAX).unwrap();
        let (first, second, third) = (take(), take(), take());
        first.know();
        let fourth = take();
        assert!(second.evicted.is_cancelled());
        assert!(!first.evicted.is_cancelled() && !third.evicted.is_cancelled());
        drop(second);
        assert_eq!(places.taken(), 3);
        third.know();
        fourth.know();
        assert_eq!(places.acquire(usize::MAX).unwrap_err(), AllTaken);
        drop(first);
        assert_eq!(places.taken(), 2);
        let last = take();
        drop((third, fourth, last));
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn one_that_was_told_to_go_is_not_known_later() {
        let places = Places::new(1);
        let first = places.acquire(usize::MAX).unwrap();
        let second = places.acquire(usize::MAX).unwrap();
        first.know();
        drop(first);
        assert_eq!(places.taken(), 1);
        drop(second);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn where_descriptors_are_scarce_there_are_fewer() {
        let places = Places::new(10);
        let _one = places.acquire(2).unwrap();
        let two = places.acquire(2).unwrap();
        let three = places.acquire(2).unwrap();
        assert_eq!(places.taken(), 2);
        let four = places.acquire(1).unwrap();
        assert!(two.evicted.is_cancelled() && three.evicted.is_cancelled());
        four.know();
        assert_eq!(places.acquire(1).unwrap_err(), AllTaken);
        assert_eq!(places.taken(), 1);
    }
}
