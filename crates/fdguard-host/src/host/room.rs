//! Room in the host's own descriptor table: nothing new is opened above 90 %, and some descriptors
//! are reserved so that closing works with a full table.

use std::sync::{Mutex, PoisonError};

use fdguard_core::log_event::LogEvent;
use fdguard_process::own_limit;
use fdguard_process::reserve::Reserve;

use super::{Events, own};
use crate::Error;

/// From here on nothing new is opened.
const REFUSE_PERCENT: u64 = 90;
/// Peak descriptors needed to start a session; it keeps two of them.
const FOR_A_START: u64 = 8;
/// Descriptors that closing a session may need at one moment, to examine processes.
const HELD_BACK: usize = 4;

/// The room.
#[derive(Debug)]
pub(super) struct Room(Mutex<LentRoom>);

#[derive(Debug)]
struct LentRoom {
    /// Absent when there was no room for it at the start.
    reserve: Option<Reserve>,
    borrowers: usize,
}

impl Room {
    /// Raises the host's limit and reserves some descriptors. If both fail, the host reports it and
    /// runs anyway.
    pub(super) fn make(raise_limit: Option<u64>, events: &Events) -> Self {
        let before = own_limit::read();
        if let Some(wanted) = raise_limit {
            let event = LogEvent::new("limit_raised").with("before", before.soft);
            match own_limit::raise_own(wanted) {
                Ok(None) => {}
                Ok(now) => events.tell(&event.with("now", now)),
                Err(error) => events.tell(&event.with("error", error.to_string())),
            }
        }
        let reserve = Reserve::new(HELD_BACK);
        if let Err(error) = &reserve {
            events.tell(&LogEvent::new("no_reserve").with("error", error.to_string()));
        }
        let reserve = reserve.ok();
        Self(Mutex::new(LentRoom {
            reserve,
            borrowers: 0,
        }))
    }

    /// Whether one more session may be started while this many are starting.
    pub(super) fn allows_one_more(&self, opening: usize) -> Result<(), Error> {
        let (Some(used), Some(limit)) = (own::count(), own_limit::read().soft) else {
            // If the count is unknown, do not refuse: at the limit the start itself fails cleanly.
            return Ok(());
        };
        if is_too_full(used, opening, limit) {
            return Err(Error::NoRoom { used, limit });
        }
        Ok(())
    }

    /// Frees the reserved descriptors until the returned value is dropped.
    pub(super) fn lend(&self) -> Loan<'_> {
        let mut lent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lent.borrowers += 1;
        if let Some(reserve) = lent.reserve.as_mut() {
            reserve.release();
        }
        Loan(self)
    }
}

/// A use of the reserved descriptors.
#[derive(Debug)]
pub(super) struct Loan<'r>(&'r Room);

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let mut lent = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        lent.borrowers -= 1;
        if lent.borrowers == 0
            && let Some(reserve) = lent.reserve.as_mut()
        {
            // As far as there is room; the next call tries again.
            reserve.take_back();
        }
    }
}

fn is_too_full(used: u64, opening: usize, limit: u64) -> bool {
    let opening = u64::try_from(opening).unwrap_or(u64::MAX);
    let soon = used.saturating_add(opening.saturating_mul(FOR_A_START));
    soon.saturating_mul(100) >= limit.saturating_mul(REFUSE_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r12_nothing_new_from_ninety_percent_on_with_those_that_are_being_opened() {
        assert!(!is_too_full(89, 0, 100));
        assert!(is_too_full(90, 0, 100));
        assert!(is_too_full(75, 2, 100));
        assert!(!is_too_full(73, 2, 100));
        assert!(is_too_full(5, 0, 0));
    }

    #[test]
    fn what_is_lent_is_free_until_the_last_one_gives_it_back() {
        let room = Room::make(None, &Events::default());
        let full = own::count().unwrap();
        let first = room.lend();
        let second = room.lend();
        let held_back = u64::try_from(HELD_BACK).unwrap();
        assert_eq!(own::count(), Some(full - held_back));
        drop(first);
        assert_eq!(own::count(), Some(full - held_back));
        drop(second);
        assert_eq!(own::count(), Some(full));
    }
}
