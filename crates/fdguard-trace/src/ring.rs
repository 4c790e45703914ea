//! The ring of events of one process, read while it is written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use fdguard_wire::{EVENTS, EventRecord, Omission, TableImage};

use crate::source::EventReader;

/// A ticket that is not filled after this many nanoseconds is skipped; it is reported late, if
/// ever. What comes after it is then doubtful, so a thread that is not scheduled for a while on a
/// busy machine is waited for.
const PATIENCE: u64 = 1_000_000_000;
/// The same if the ring fills up meanwhile.
const LITTLE_PATIENCE: u64 = 20_000_000;
/// If this much of the ring is in use, the shorter wait applies.
const FULL: u64 = EVENTS as u64 / 4;
/// The most skipped tickets that are read again.
const MOST_HOLES: usize = 1024;
/// If the reader fell behind, this much of the ring is left to the writers.
const MARGIN: u64 = EVENTS as u64 / 8;

/// A reader of one ring.
#[derive(Debug)]
pub(crate) struct Ring {
    file: File,
    next: u64,
    /// When the next ticket was first seen to be empty.
    waiting_since: Option<u64>,
    holes: Vec<u64>,
}

/// What was written since the last read.
#[derive(Debug, Default)]
pub struct DrainedEvents {
    /// Events in order, and some that were late.
    pub events: Vec<EventRecord>,
    /// The ticket of each.
    pub tickets: Vec<u64>,
    /// All tickets before this one were read, or skipped.
    pub next: u64,
    /// How many were overwritten before they were read: those before the events.
    pub lost: u64,
    /// How much of the ring was in use.
    pub behind: u64,
    /// Whether its process was forked, and did not start with exec.
    pub is_forked: bool,
    /// How many programs it started without the library, by [`Omission`].
    pub omissions: [u64; Omission::KINDS],
}

impl DrainedEvents {
    fn push(&mut self, ticket: u64, event: EventRecord) {
        self.tickets.push(ticket);
        self.events.push(event);
    }
}

impl Ring {
    /// The ring of a table's file.
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            next: 0,
            waiting_since: None,
            holes: Vec::new(),
        }
    }

    fn read(
        &mut self,
        written: u64,
        (now, is_end): (u64, bool),
        drained: &mut DrainedEvents,
    ) -> io::Result<()> {
        let patience = if written - self.next > FULL {
            LITTLE_PATIENCE
        } else {
            PATIENCE
        };
        while self.next < written {
            // Up to the point where the ring wraps around.
            let until_turn = EVENTS as u64 - self.next % EVENTS as u64;
            let count = (written - self.next).min(until_turn);
            let mut bytes = vec![0; usize::try_from(count).unwrap_or(0) * TableImage::EVENT];
            let at = TableImage::event_at(self.next) as u64;
            self.file.read_exact_at(&mut bytes, at)?;
            for bytes in bytes.chunks_exact(TableImage::EVENT) {
                match TableImage::event(bytes, self.next) {
                    Some(event) => drained.push(self.next, event),
                    None if is_end => {}
                    None => {
                        let since = *self.waiting_since.get_or_insert(now);
                        if now.saturating_sub(since) < patience {
                            return Ok(());
                        }
                        if self.holes.len() < MOST_HOLES {
                            self.holes.push(self.next);
                        }
                    }
                }
                self.waiting_since = None;
                self.next += 1;
            }
        }
        Ok(())
    }

    fn look_again(&mut self, written: u64, drained: &mut DrainedEvents) -> io::Result<()> {
        self.holes.retain(|ticket| ticket + EVENTS as u64 > written);
        let mut left = Vec::new();
        for ticket in std::mem::take(&mut self.holes) {
            let mut bytes = [0; TableImage::EVENT];
            self.file
                .read_exact_at(&mut bytes, TableImage::event_at(ticket) as u64)?;
            match TableImage::event(&bytes, ticket) {
                Some(event) => drained.push(ticket, event),
                None => left.push(ticket),
            }
        }
        self.holes = left;
        Ok(())
    }
}

impl EventReader for Ring {
    fn drain(&mut self, now: u64, is_end: bool) -> io::Result<DrainedEvents> {
        let mut head = [0; TableImage::HEAD];
        match self.file.read_exact_at(&mut head, 0) {
            // The file was found before its process set its length.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(DrainedEvents::default());
            }
            result => result?,
        }
        let Some(image) = TableImage::new(&head) else {
            return Ok(DrainedEvents::default());
        };
        let written = image.tickets();
        let mut drained = DrainedEvents {
            behind: written.saturating_sub(self.next),
            is_forked: image.parent().is_some(),
            omissions: image.omissions(),
            ..DrainedEvents::default()
        };
        if drained.behind > EVENTS as u64 {
            let first = written.saturating_sub(EVENTS as u64 - MARGIN);
            drained.lost = first.saturating_sub(self.next);
            self.next = first;
            self.holes.clear();
        }
        self.look_again(written, &mut drained)?;
        self.read(written, (now, is_end), &mut drained)?;
        drained.next = self.next;
        Ok(drained)
    }
}

#[cfg(test)]
mod tests {
    use super::{EventReader as _, Ring};

    /// Regression: the file was taken for one without a process, and no hazard of its process was
    /// ever reported: in 6 of 450 runs on a busy machine.
    #[test]
    fn r40_a_file_that_is_found_before_it_has_its_length_is_looked_at_again() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut ring = Ring::new(file.reopen().unwrap());
        let drained = ring.drain(0, false).unwrap();
        assert!(drained.events.is_empty());
        file.as_file().set_len(1 << 20).unwrap();
        assert!(ring.drain(0, false).unwrap().events.is_empty());
    }
}
