//! The descriptor table of one process, or of several that share it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::lifetime::{Actor, ClosedFd, FdLifetime, Generation};
use super::slot::FdSlot;
use super::tally::{Counts, Tally};
use crate::Fd;
use crate::event::{CloseCall, StackId, Tid};

/// The most numbers that are kept. Linux assigns up to 2^20 by default; nonsensical numbers beyond
/// that are not kept.
const MOST_SLOTS: usize = 1 << 20;

/// The most numbers that are kept for their past alone.
const MOST_FREE: usize = 1 << 14;

/// What the hazard detector concluded about an event.
#[derive(Debug, Default)]
pub(crate) struct EventNotes {
    /// The threads inside a call on the number that is closed.
    pub(crate) torn: Vec<Tid>,
    /// The close that made the closer act on a stale number.
    pub(crate) root: Option<Actor>,
    /// The use was meant for an earlier descriptor: it makes no thread a user of this one.
    pub(crate) is_stale: bool,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    slots: BTreeMap<Fd, FdSlot>,
    counts: Counts,
    live: usize,
    latest: Generation,
    /// When something was last opened.
    opened_at: u64,
    /// The past is not fully known.
    is_doubtful: bool,
    /// The numbers that `close_range` closed, whatever was there.
    swept: Option<(Fd, Fd)>,
    /// It began as a copy of a table whose events are not known here: what was not seen being
    /// opened came with it.
    is_copy: bool,
}

impl Table {
    /// How many numbers are kept.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn opened_at(&self) -> u64 {
        self.opened_at
    }

    /// Whether nothing was ever at this number.
    pub(super) fn was_never_open(&self, fd: Fd) -> bool {
        let is_swept = self
            .swept
            .is_some_and(|(first, last)| (first..=last).contains(&fd));
        !self.is_doubtful && !is_swept && !self.slot(fd).is_some_and(FdSlot::was_open)
    }

    /// Closes all numbers of a range, whatever is there.
    pub(super) fn sweep(&mut self, first: Fd, last: Fd) {
        let (from, to) = self.swept.unwrap_or((first, last));
        self.swept = Some((from.min(first), to.max(last)));
    }

    pub(super) fn slot(&self, fd: Fd) -> Option<&FdSlot> {
        self.slots.get(&fd)
    }

    pub(super) fn current_mut(&mut self, fd: Fd) -> Option<&mut FdLifetime> {
        self.slots.get_mut(&fd)?.current.as_mut()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = (Fd, &FdLifetime)> {
        let current = |(fd, slot): (&Fd, _)| Some((*fd, FdSlot::current(slot)?));
        self.slots.iter().filter_map(current)
    }

    /// Opens a descriptor. If the number is still open here, its close was missed.
    pub(super) fn open(&mut self, fd: Fd, mut life: FdLifetime) {
        if self.slots.len() >= MOST_SLOTS && !self.slots.contains_key(&fd) {
            return;
        }
        self.close(fd, None, CloseCall::Unknown, EventNotes::default());
        self.latest += 1;
        life.generation = self.latest;
        let opened_at = life.opener.map_or(0, |opener| opener.at);
        self.opened_at = self.opened_at.max(opened_at);
        self.counts.open(life.stack());
        self.slots.entry(fd).or_default().current = Some(life);
        self.live += 1;
    }

    /// Closes a descriptor; false if none was known at this number.
    pub(super) fn close(
        &mut self,
        fd: Fd,
        closer: Option<Actor>,
        call: CloseCall,
        notes: EventNotes,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(&fd) else {
            return false;
        };
        let Some(life) = slot.current.take() else {
            return false;
        };
        self.counts.close(life.stack());
        self.live -= 1;
        slot.remember(ClosedFd {
            life,
            closer,
            call,
            torn: notes.torn,
            root: notes.root,
        });
        self.forget_the_oldest();
        true
    }

    /// Replaces the stack that opened the current descriptor of this number.
    pub(super) fn reassign(&mut self, fd: Fd, stack: Option<StackId>) {
        let life = self
            .slots
            .get_mut(&fd)
            .and_then(|slot| slot.current.as_mut());
        if let Some(opener) = life.and_then(|life| life.opener.as_mut()) {
            self.counts.reassign(opener.stack, stack);
            opener.stack = stack;
        }
    }

    /// Records the close of a descriptor whose open was not seen.
    pub(super) fn close_unknown(
        &mut self,
        fd: Fd,
        life: FdLifetime,
        closer: Actor,
        call: CloseCall,
    ) {
        if self.slots.len() >= MOST_SLOTS && !self.slots.contains_key(&fd) {
            return;
        }
        self.latest += 1;
        let generation = self.latest;
        self.slots.entry(fd).or_default().remember(ClosedFd {
            life: FdLifetime {
                generation,
                inherited: self.is_copy,
                ..life
            },
            closer: Some(closer),
            call,
            torn: Vec::new(),
            root: None,
        });
        self.forget_the_oldest();
    }

    /// A close that is reported after its number was reused: it belongs to the previous descriptor.
    pub(super) fn close_late(&mut self, fd: Fd, closer: Actor, call: CloseCall) {
        let last = self
            .slots
            .get_mut(&fd)
            .and_then(|slot| slot.past.back_mut());
        if let Some(past) = last.filter(|past| past.closer.is_none()) {
            past.closer = Some(closer);
            past.call = call;
        }
    }

    pub(super) fn live_within(&self, numbers: RangeInclusive<Fd>) -> Vec<Fd> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let open = self
            .slots
            .range(numbers)
            .filter(|(_, slot)| slot.current.is_some());
        open.map(|(fd, _)| *fd).collect()
    }

    /// Events are missing: the past is no longer reliable, and any thread may be related to what is
    /// open.
    pub(super) fn doubt(&mut self) {
        self.forget_past();
        for life in self
            .slots
            .values_mut()
            .filter_map(|slot| slot.current.as_mut())
        {
            life.doubt();
        }
    }

    /// The process began as a copy of another one.
    pub(super) fn begin_as_copy(&mut self) {
        self.doubt();
        self.is_copy = true;
    }

    /// The same for one number.
    pub(super) fn doubt_number(&mut self, fd: Fd) {
        self.forget_past_of(fd);
        if let Some(life) = self.current_mut(fd) {
            life.doubt();
        }
    }

    /// Drops the past, which is no longer reliable.
    pub(super) fn forget_past(&mut self) {
        self.is_doubtful = true;
        self.slots.retain(|_, slot| {
            slot.past.clear();
            slot.current.is_some()
        });
    }

    pub(super) fn forget_past_of(&mut self, fd: Fd) {
        if self.slots.len() >= MOST_SLOTS {
            self.is_doubtful = true;
            return;
        }
        let slot = self.slots.entry(fd).or_default();
        slot.past.clear();
        slot.was_open = true;
    }

    /// Free numbers are kept for their last closer; if there are too many, the older half is
    /// dropped.
    fn forget_the_oldest(&mut self) {
        if self.slots.len() - self.live < MOST_FREE {
            return;
        }
        let last = |slot: &FdSlot| slot.past.back().map_or(0, |past| past.life.generation);
        let free = self.slots.values().filter(|slot| slot.current.is_none());
        let mut ages: Vec<Generation> = free.map(last).collect();
        let middle = ages.len() / 2;
        let (_, median, _) = ages.select_nth_unstable(middle);
        let median = *median;
        self.is_doubtful = true;
        self.slots
            .retain(|_, slot| slot.current.is_some() || last(slot) > median);
    }

    /// The table of a forked child: the same descriptors without their past, which was the
    /// parent's.
    pub(super) fn fork(&self) -> Self {
        let mut child = Self {
            latest: self.latest,
            // Numbers that the parent had closed were open once.
            is_doubtful: true,
            ..Self::default()
        };
        for (fd, life) in self.live() {
            let life = FdLifetime {
                inherited: true,
                ..life.clone()
            };
            child.counts.open(life.stack());
            let slot = FdSlot {
                current: Some(life),
                ..FdSlot::default()
            };
            child.slots.insert(fd, slot);
            child.live += 1;
        }
        child
    }

    /// After exec: what is left is inherited, and the code that closed the rest is gone.
    pub(super) fn exec(&mut self, kept: Option<&[Fd]>) {
        let stays = |fd: Fd, life: &FdLifetime| match kept {
            Some(kept) => kept.contains(&fd),
            None => !life.cloexec,
        };
        let going: Vec<Fd> = self
            .live()
            .filter(|(fd, life)| !stays(*fd, life))
            .map(|(fd, _)| fd)
            .collect();
        for fd in going {
            self.close(fd, None, CloseCall::Exec, EventNotes::default());
        }
        self.forget_past();
        for slot in self.slots.values_mut() {
            if let Some(life) = &mut slot.current {
                life.inherited = true;
                life.cloexec = false;
            }
        }
    }

    /// The sites, those with most open first.
    pub(super) fn tallies(&self) -> Vec<Tally> {
        let mut oldest: BTreeMap<_, Actor> = BTreeMap::new();
        for opener in self.live().filter_map(|(_, life)| life.opener) {
            let first = oldest.entry(opener.stack).or_insert(opener);
            if opener.at < first.at {
                *first = opener;
            }
        }
        let mut tallies: Vec<Tally> = self
            .counts
            .iter()
            .map(|(stack, count)| Tally {
                stack,
                live: count.live(),
                opened: count.opened,
                closed: count.closed,
                oldest: oldest.get(&stack).map(|opener| opener.at),
                thread: oldest.get(&stack).map(|opener| opener.thread),
            })
            .collect();
        tallies.sort_by_key(|tally| (std::cmp::Reverse((tally.live, tally.opened)), tally.stack));
        tallies
    }
}
