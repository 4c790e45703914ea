//! Counters of the server for the metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

/// Counters that only go up.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Requests that were answered, by the first digit of their status.
    answered: [AtomicU64; 6],
    pub(super) connections: Count,
    /// Connections that were refused because there were too many.
    pub(super) refused: Count,
    /// Unauthenticated connections that were evicted for newer ones.
    pub(super) evicted: Count,
    /// Connections whose callers did not read their answer.
    pub(super) unread: Count,
    /// Connections that took too long for a head.
    pub(super) too_slow: Count,
    /// Commands interrupted because the client disconnected.
    pub(super) abandoned: Count,
}

/// A counter.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    pub(super) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        if let Some(count) = self.answered.get(class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The count of each class that there was: `("2xx", 17)`.
    pub(super) fn by_class(&self) -> Vec<(&'static str, u64)> {
        let names = ["0xx", "1xx", "2xx", "3xx", "4xx", "5xx"];
        let counts = self.answered.iter().map(|one| one.load(Ordering::Relaxed));
        names
            .into_iter()
            .zip(counts)
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}
