//! Slots of the host: sessions that are opening, open or closing, the clients, and the latest
//! receipts. Nothing here blocks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::client::Client;
use super::entry::Entry;
use crate::receipt::Receipt;

/// Receipts that are kept.
const KEPT: usize = 1024;

/// A place of a session.
#[derive(Debug)]
pub(super) enum Place {
    /// Its program is being started.
    Opening {
        /// The client that it is for.
        client: Option<String>,
    },
    /// It is open or closing.
    Taken(Arc<Entry>),
}

impl Place {
    fn client(&self) -> Option<&str> {
        match self {
            Self::Opening { client } => client.as_deref(),
            Self::Taken(entry) => entry.client.as_deref(),
        }
    }
}

/// All slots and clients.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) places: BTreeMap<String, Place>,
    pub(super) clients: BTreeMap<String, Client>,
    closed: VecDeque<Receipt>,
    /// Nothing new is accepted.
    pub(super) is_closing: bool,
}

impl Table {
    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.places.values().filter_map(|place| match place {
            Place::Taken(entry) => Some(entry),
            Place::Opening { .. } => None,
        })
    }

    pub(super) fn entry(&self, id: &str) -> Option<&Arc<Entry>> {
        match self.places.get(id) {
            Some(Place::Taken(entry)) => Some(entry),
            _ => None,
        }
    }

    /// The receipt of a closed session; the last `KEPT` are kept.
    pub(super) fn receipt(&self, id: &str) -> Option<&Receipt> {
        self.closed.iter().rev().find(|closed| closed.session == id)
    }

    pub(super) fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        self.closed.iter()
    }

    /// Releases its slot and keeps its receipt.
    pub(super) fn close(&mut self, receipt: Receipt) {
        self.places.remove(&receipt.session);
        if self.closed.len() == KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back(receipt);
    }

    pub(super) fn places_of(&self, client: &str) -> usize {
        let is_its = |place: &&Place| place.client() == Some(client);
        self.places.values().filter(is_its).count()
    }

    pub(super) fn opening(&self) -> usize {
        let is_opening = |place: &&Place| matches!(place, Place::Opening { .. });
        self.places.values().filter(is_opening).count()
    }

    /// The session to evict at the limit.
    pub(super) fn gives_way(&self, idle_after: Duration) -> Option<Arc<Entry>> {
        let seen: Vec<EvictionRank> = self
            .entries()
            .map(|entry| EvictionRank::of(entry))
            .collect();
        let which = gives_way(&seen, idle_after)?;
        self.entries().nth(which).cloned()
    }
}

/// What decides which session is evicted.
#[derive(Clone, Copy, Debug)]
pub(super) struct EvictionRank {
    is_ending: bool,
    is_dead: bool,
    /// `None` while it is in use.
    idle: Option<Duration>,
}

impl EvictionRank {
    fn of(entry: &Entry) -> Self {
        let idle = entry.idle_for();
        Self {
            is_ending: entry.is_ending(),
            // The command in which it died must still get its answer.
            is_dead: entry.is_dead() && idle.is_some(),
            idle,
        }
    }
}

/// First closing sessions, then dead ones, then the longest idle of those past their idle time; no
/// others (R54).
fn gives_way(seen: &[EvictionRank], idle_after: Duration) -> Option<usize> {
    let first = |wanted: fn(&EvictionRank) -> bool| seen.iter().position(wanted);
    let longest_idle = || {
        let idle = seen.iter().enumerate();
        let idle =
            idle.filter_map(|(at, seen)| Some((seen.idle.filter(|t| *t >= idle_after)?, at)));
        idle.max().map(|(_, at)| at)
    };
    first(|seen| seen.is_ending)
        .or_else(|| first(|seen| seen.is_dead))
        .or_else(longest_idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(is_ending: bool, is_dead: bool, idle_seconds: Option<u64>) -> EvictionRank {
        EvictionRank {
            is_ending,
            is_dead,
            idle: idle_seconds.map(Duration::from_secs),
        }
    }

    #[test]
    fn r54_the_dead_give_way_first_then_the_longest_idle_beyond_its_time() {
        let after = Duration::from_secs(900);
        let busy = seen(false, false, None);
        let fresh = seen(false, false, Some(899));
        let idle = seen(false, false, Some(900));
        let idler = seen(false, false, Some(5000));
        let dead = seen(false, true, Some(0));
        let ending = seen(true, false, None);
        assert_eq!(gives_way(&[busy, fresh], after), None);
        assert_eq!(gives_way(&[], after), None);
        assert_eq!(gives_way(&[busy, idle, fresh], after), Some(1));
        assert_eq!(gives_way(&[idle, idler, idle], after), Some(1));
        assert_eq!(gives_way(&[idler, dead, idle], after), Some(1));
        assert_eq!(gives_way(&[idler, dead, ending], after), Some(2));
    }
}
