//! Series of closes: a daemon that closes every number does not close any descriptor twice.

use std::collections::BTreeMap;

use super::Rule;
use super::incident::Incident;
use crate::event::{StackId, Tid, TraceEvent, What};
use crate::{Fd, TraceKey};

/// This many neighbouring numbers closed by one line are a series. Two are often a pipe, three the
/// standard streams of a child.
const ROW: u32 = 4;

/// A series continues at once; after this many nanoseconds it is over.
const PATIENCE: u64 = 20_000_000;

/// The most threads whose next close is awaited.
const MOST: usize = 4096;

/// What is unusual about a close that fails, if it is one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CloseOddity {
    /// Nothing is known about the number.
    pub(super) is_blind: bool,
    /// The number was that of a directory stream of the same thread: a loop over `/proc/self/fd`
    /// tries it, too.
    pub(super) is_listing: bool,
}

/// The numbers that one thread closes in sequence.
#[derive(Clone, Debug)]
struct Run {
    stack: Option<StackId>,
    last: Fd,
    since: u64,
    length: u32,
    /// It tried a number that no code can own: one that was never open, or one from a list.
    is_blind: bool,
    /// It follows a list of open descriptors, so it may leave out numbers.
    is_listing: bool,
    waiting: Vec<(&'static Rule, Incident)>,
}

impl Run {
    fn is_sweep(&self) -> bool {
        self.length >= ROW || (self.is_blind && self.length > 1)
    }

    fn verdict(self) -> Vec<(&'static Rule, Incident)> {
        if self.is_sweep() {
            Vec::new()
        } else {
            self.waiting
        }
    }
}

/// The series of all threads.
#[derive(Clone, Debug, Default)]
pub(super) struct Sweeps {
    runs: BTreeMap<(TraceKey, Tid), Run>,
    next_look: u64,
}

impl Sweeps {
    /// Takes an event with the incidents that depend on what this thread closes next; returns those
    /// whose wait is over.
    pub(super) fn advance(
        &mut self,
        event: &TraceEvent,
        oddity: CloseOddity,
        mut found: Vec<(&'static Rule, Incident)>,
    ) -> Vec<(&'static Rule, Incident)> {
        let by = (event.process, event.thread);
        let mut over = self.lose_patience(event.at);
        let fd = match event.what {
            What::Close { fd, .. } => fd,
            What::Exit => {
                over.extend(self.end(|(process, _), _| *process == event.process));
                return over;
            }
            _ => return over,
        };
        if let Some(run) = self.runs.get_mut(&by)
            && run.stack == event.stack
            && (run.last.abs_diff(fd) == 1 || run.is_listing || oddity.is_listing)
        {
            (run.last, run.since) = (fd, event.at);
            run.length = run.length.saturating_add(1);
            run.is_blind |= oddity.is_blind || oddity.is_listing;
            run.is_listing |= oddity.is_listing;
            run.waiting.append(&mut found);
            if run.is_sweep() {
                run.waiting.clear();
            }
            return over;
        }
        if self.runs.len() >= MOST {
            over.extend(
                std::mem::take(&mut self.runs)
                    .into_values()
                    .flat_map(Run::verdict),
            );
        }
        let run = Run {
            stack: event.stack,
            last: fd,
            since: event.at,
            length: 1,
            is_blind: oddity.is_blind || oddity.is_listing,
            is_listing: oddity.is_listing,
            waiting: found,
        };
        over.extend(self.runs.insert(by, run).into_iter().flat_map(Run::verdict));
        over
    }

    /// The incidents still waiting, for when no more events come.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &(&'static Rule, Incident)> {
        let open = self.runs.values().filter(|run| !run.is_sweep());
        open.flat_map(|run| &run.waiting)
    }

    /// Ends series that have not continued for a while. Usually nothing waits and nothing is
    /// searched.
    fn lose_patience(&mut self, now: u64) -> Vec<(&'static Rule, Incident)> {
        if now < self.next_look {
            return Vec::new();
        }
        self.next_look = now.saturating_add(PATIENCE);
        self.end(|_, run| run.since.saturating_add(PATIENCE) <= now)
    }

    fn end(
        &mut self,
        is_over: impl Fn(&(TraceKey, Tid), &Run) -> bool,
    ) -> Vec<(&'static Rule, Incident)> {
        let over = self.runs.iter().filter(|(by, run)| is_over(by, run));
        let over: Vec<_> = over.map(|(by, _)| *by).collect();
        let runs = over.into_iter().filter_map(|by| self.runs.remove(&by));
        runs.flat_map(Run::verdict).collect()
    }
}
