//! Idle connections kept for another request: few, and for a short time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::exchange::ParkedConnection;
use super::request::Origin;

/// Limits on the number and age of idle connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) per_origin: usize,
    pub(super) all: usize,
    pub(super) idle: Duration,
}

/// The connections of one caller.
pub(super) struct Pool {
    bounds: Bounds,
    shelf: Mutex<Shelf>,
}

#[derive(Default)]
struct Shelf {
    /// Oldest first.
    idle: Vec<Idle>,
    is_closed: bool,
    sweeper: Option<JoinHandle<()>>,
}

struct Idle {
    origin: Origin,
    since: Instant,
    connection: ParkedConnection,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("idle", &self.shelf().idle.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            shelf: Mutex::default(),
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of idle connections.
    pub(super) fn idle(&self) -> usize {
        self.shelf().idle.len()
    }

    /// The most recently used live connection; closes dead ones on the way.
    pub(super) fn checkout(&self, origin: &Origin) -> Option<ParkedConnection> {
        loop {
            let mut found = {
                let mut shelf = self.shelf();
                let at = shelf.idle.iter().rposition(|idle| idle.origin == *origin)?;
                shelf.idle.remove(at)
            };
            let is_young = found.since.elapsed() < self.bounds.idle;
            if is_young && found.connection.is_alive() {
                return Some(found.connection);
            }
        }
    }

    /// Keeps a connection; returns whether it did.
    pub(super) fn put(self: &Arc<Self>, origin: Origin, connection: ParkedConnection) -> bool {
        // Without a runtime it would never be removed.
        let Ok(runtime) = Handle::try_current() else {
            return false;
        };
        let mut dropped = Vec::new();
        let mut shelf = self.shelf();
        if shelf.is_closed || self.bounds.per_origin == 0 || self.bounds.all == 0 {
            return false;
        }
        let same = shelf
            .idle
            .iter()
            .filter(|idle| idle.origin == origin)
            .count();
        if same >= self.bounds.per_origin
            && let Some(at) = shelf.idle.iter().position(|idle| idle.origin == origin)
        {
            dropped.push(shelf.idle.remove(at));
        }
        if shelf.idle.len() >= self.bounds.all {
            dropped.push(shelf.idle.remove(0));
        }
        shelf.idle.push(Idle {
            origin,
            since: Instant::now(),
            connection,
        });
        if shelf.sweeper.as_ref().is_none_or(JoinHandle::is_finished) {
            shelf.sweeper = Some(runtime.spawn(sweep(Arc::downgrade(self), self.bounds.idle)));
        }
        drop(shelf);
        drop(dropped);
        true
    }

    /// Closes all idle connections, and accepts no more.
    pub(super) fn close(&self) -> usize {
        let mut shelf = self.shelf();
        shelf.is_closed = true;
        if let Some(sweeper) = shelf.sweeper.take() {
            sweeper.abort();
        }
        let idle = std::mem::take(&mut shelf.idle);
        drop(shelf);
        idle.len()
    }

    /// Drops connections that were idle for too long. Returns when the next one expires.
    fn expire(&self) -> Option<Instant> {
        let mut shelf = self.shelf();
        let limit = self.bounds.idle;
        let old: Vec<Idle> = shelf
            .idle
            .extract_if(.., |idle| idle.since.elapsed() >= limit)
            .collect();
        let next = shelf.idle.first().map(|idle| idle.since + limit);
        if next.is_none() {
            // Under the lock: the next `put` starts another sweeper.
            shelf.sweeper = None;
        }
        drop(shelf);
        drop(old);
        next
    }
}

/// Runs while something waits. It does not keep the pool alive.
async fn sweep(pool: Weak<Pool>, idle: Duration) {
    let mut next = Instant::now() + idle;
    loop {
        tokio::time::sleep_until(next.into()).await;
        let Some(later) = pool.upgrade().and_then(|pool| pool.expire()) else {
            return;
        };
        next = later;
    }
}
