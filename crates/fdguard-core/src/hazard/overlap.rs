//! Incidents that are untrue if another thread's unlock came first.
//!
//! A close drops locks only if they are still held when it happens, and it happens somewhere
//! between its [`What::Close`] and its [`What::CloseReturned`]. So the incident waits until the
//! close and every overlapping change of locks are over. If one of them released a lock of the
//! file, or another close dropped it, their order is not known, and nothing is reported.

use super::Rule;
use super::incident::Incident;
use crate::event::{Errno, Tid, TraceEvent, What};
use crate::ledger::{FdSlot, Ledger};
use crate::{Fd, FileId, TraceKey};

/// The most incidents that wait at the same time; further ones are dropped.
const MOST: usize = 256;

/// What an incident waits for.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    /// The file whose locks are dropped.
    pub(super) file: FileId,
    /// The number that they were taken through.
    pub(super) holder: Fd,
    /// Threads that are changing a lock of the file.
    pub(super) changing: Vec<Tid>,
}

#[derive(Clone, Debug)]
struct Waiting {
    rule: &'static Rule,
    incident: Incident,
    doubt: Doubt,
    closer: Tid,
    is_closed: bool,
}

impl Waiting {
    fn is_over(&self) -> bool {
        self.is_closed && self.doubt.changing.is_empty()
    }
}

/// All waiting incidents.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlaps(Vec<Waiting>);

impl Overlaps {
    /// Holds incidents back until the effect of this event, a close, is certain.
    pub(super) fn add(
        &mut self,
        event: &TraceEvent,
        rule: &'static Rule,
        incident: Incident,
        doubt: Doubt,
    ) {
        if self.0.len() < MOST {
            self.0.push(Waiting {
                rule,
                incident,
                doubt,
                closer: event.thread,
                is_closed: false,
            });
        }
    }

    /// Takes the next event, with the ledger as it was before; returns the incidents that became
    /// certain.
    pub(super) fn advance(
        &mut self,
        event: &TraceEvent,
        ledger: &Ledger,
    ) -> Vec<(&'static Rule, Incident)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.0.retain_mut(|one| {
            one.incident.process != event.process || is_still_possible(one, event, ledger)
        });
        let over = |one: &mut Waiting| one.is_over();
        let over = self.0.extract_if(.., over);
        over.map(|one| (one.rule, one.incident)).collect()
    }
}

/// Keeps waiting; false if the event makes the incident doubtful.
fn is_still_possible(one: &mut Waiting, event: &TraceEvent, ledger: &Ledger) -> bool {
    let thread = event.thread;
    if thread == one.closer {
        one.is_closed = true;
    }
    one.doubt.changing.retain(|other| *other != thread);
    let file_of = |fd: Fd| {
        let life = ledger.slot(event.process, fd).and_then(FdSlot::current);
        life.and_then(|life| life.file)
    };
    match &event.what {
        What::Lock {
            fd,
            file,
            taken: false,
            ..
        } => (*file).or_else(|| file_of(*fd)) != Some(one.doubt.file),
        What::Locking { fd } => {
            if !one.is_closed && file_of(*fd) == Some(one.doubt.file) {
                one.doubt.changing.push(thread);
            }
            true
        }
        // One of two overlapping closes dropped the locks, and it is unknown which.
        What::Close { fd, errno, .. } => {
            let is_of_file = *fd == one.doubt.holder || file_of(*fd) == Some(one.doubt.file);
            one.is_closed || !is_of_file || *errno == Some(Errno::Ebadf)
        }
        What::CloseRange { .. } => one.is_closed,
        What::Exit => {
            // Its close had returned, or its outcome would be unknown.
            one.is_closed = true;
            one.doubt.changing.is_empty()
        }
        What::Lost { .. } | What::Missing | What::Exec { .. } => false,
        _ => true,
    }
}

/// A call that a thread is inside of, as far as locks matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Busy {
    /// It takes or releases a lock of this file; `releases` were complete before.
    Locking { file: FileId, releases: u64 },
    /// It closes a descriptor of this file.
    Closing(FileId),
}

/// What each busy thread is doing.
pub(super) type BusyThreads = std::collections::BTreeMap<(TraceKey, Tid), Busy>;
