//! Reconciles the events with what `/proc` shows.

use std::collections::BTreeMap;

use super::lifetime::FdLifetime;
use super::{EventNotes, Ledger, unseen};
use crate::event::{CloseCall, StackId};
use crate::{Class, Fd, FileId, TraceKey};

/// A descriptor as observed from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFd {
    /// Its number.
    pub fd: Fd,
    /// Which file; absent: not checked.
    pub file: Option<FileId>,
    /// What it is.
    pub class: Option<Class>,
}

/// Where a descriptor comes from, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdProvenance {
    /// Its open was seen, with this stack.
    TraceScript(Option<StackId>),
    /// It came from the parent, or from the program before an exec.
    Inherited,
    /// It was opened before tracing began, or inside a library.
    Unknown,
}

/// The result of a reconciliation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// Every descriptor that is open, by number.
    pub live: BTreeMap<Fd, FdProvenance>,
    /// Numbers whose entry was wrong: their close or replacement was not seen.
    pub corrected: Vec<Fd>,
}

impl Reconciliation {
    /// How many have a known opening line.
    #[must_use]
    pub fn attributed(&self) -> u64 {
        let traced = self.live.values();
        traced
            .filter(|one| matches!(one, FdProvenance::TraceScript(Some(_))))
            .count() as u64
    }
}

impl Ledger {
    /// Corrects the table of a process by a list of everything it had open at the time `at`. Later
    /// opens are left alone.
    pub fn reconcile(&mut self, process: TraceKey, at: u64, seen: &[ObservedFd]) -> Reconciliation {
        let table = self.table_mut(process);
        let mut outcome = Reconciliation::default();
        let shown: BTreeMap<Fd, &ObservedFd> = seen.iter().map(|one| (one.fd, one)).collect();
        let is_newer = |life: &FdLifetime| life.opener.is_some_and(|opener| opener.at >= at);
        let wrong: Vec<Fd> = table
            .live()
            .filter(|(_, life)| !is_newer(life))
            .filter(|(fd, life)| shown.get(fd).is_none_or(|one| differ(life.file, one.file)))
            .map(|(fd, _)| fd)
            .collect();
        for fd in wrong {
            table.close(fd, None, CloseCall::Unknown, EventNotes::default());
            outcome.corrected.push(fd);
        }
        for one in seen {
            if let Some(life) = table.current_mut(one.fd) {
                if !is_newer(life) {
                    life.file = life.file.or(one.file);
                    life.class = one.class.clone().or(life.class.take());
                }
            } else {
                let life = FdLifetime {
                    file: one.file,
                    class: one.class.clone(),
                    ..unseen()
                };
                table.open(one.fd, life);
            }
        }
        let live = table.live().map(|(fd, life)| (fd, standing(life)));
        outcome.live = live.collect();
        outcome
    }
}

fn standing(life: &FdLifetime) -> FdProvenance {
    if life.inherited {
        FdProvenance::Inherited
    } else if life.opener.is_some() {
        FdProvenance::TraceScript(life.stack())
    } else {
        FdProvenance::Unknown
    }
}

/// Whether both are known and differ.
fn differ(a: Option<FileId>, b: Option<FileId>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a != b)
}
