//! The hazard detector: keeps a ledger and runs every check on every event.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::context::EventContext;
use super::incident::{Incident, Key};
use super::memory::{Memory, UseStanding};
use super::overlap::Overlaps;
use super::sweep::{CloseOddity, Sweeps};
use super::{HAZARDS, Hazard, Rule, lock_drop, repetition, stale};
use crate::event::{CollectedEvents, Errno, OpenCall, StackId, Tid, TraceEvent, What};
use crate::gap::Gap;
use crate::ledger::{Actor, EventNotes, FdSlot, Generation, Ledger};
use crate::origin::Stack;
use crate::units::counted;
use crate::{Fd, TraceKey};

/// The most distinct hazards that are kept; further ones are only counted.
const MOST_HAZARDS: usize = 1024;

/// The most wrong closes that are remembered, so that none is reported twice.
const MOST_REPORTED: usize = 4096;

/// Detects hazards in events.
#[derive(Clone, Debug, Default)]
pub struct HazardDetector {
    collected: CollectedEvents,
    ledger: Ledger,
    memory: Memory,
    sweeps: Sweeps,
    overlaps: Overlaps,
    found: BTreeMap<Key, (&'static Rule, Incident, u64)>,
    reported: BTreeSet<(TraceKey, Fd, Generation)>,
    unreported: u64,
}

impl HazardDetector {
    /// A detector for events of these kinds.
    #[must_use]
    pub fn new(collected: CollectedEvents) -> Self {
        Self {
            collected,
            ..Self::default()
        }
    }

    /// Observes the next event.
    pub fn observe(&mut self, event: &TraceEvent) {
        self.observe_as(event, false);
    }

    /// Observes the next event, which protection kept from doing harm: its hazards are reported as
    /// prevented.
    pub fn observe_prevented(&mut self, event: &TraceEvent) {
        self.observe_as(event, true);
    }

    /// Observes an event that is reported after later ones, in whose place [`What::Missing`] was
    /// reported. It corrects the state of its number; nothing is concluded from it.
    pub fn observe_late(&mut self, event: &TraceEvent) {
        self.ledger.apply_late(event);
    }

    fn observe_as(&mut self, event: &TraceEvent, prevented: bool) {
        for (rule, incident) in self.overlaps.advance(event, &self.ledger) {
            self.raise(rule, incident);
        }
        let context = EventContext {
            event,
            ledger: &self.ledger,
            memory: &self.memory,
        };
        let is_stale = stale::stale_use(&context).is_some() || is_orphan(&context);
        let standing = standing(&context, is_stale);
        let (torn, root) = (torn(&context), root(&context));
        let oddity = CloseOddity {
            is_blind: is_blind(&context),
            is_listing: is_listing(&context),
        };
        let found = HAZARDS.iter().flat_map(|(rule, check)| {
            let incidents = check(&context);
            incidents.into_iter().map(move |mut incident| {
                incident.prevented = prevented;
                (rule, incident)
            })
        });
        let (waiting, mut certain): (Vec<_>, Vec<_>) =
            found.partition(|(_, incident)| incident.may_be_sweep);
        for (rule, mut incident) in certain.extract_if(.., |(_, incident)| incident.doubt.is_some())
        {
            if let Some(doubt) = incident.doubt.take() {
                self.overlaps.add(event, rule, incident, doubt);
            }
        }
        let over = self.sweeps.advance(event, oddity, waiting);
        for (rule, incident) in certain.into_iter().chain(over) {
            self.raise(rule, incident);
        }
        self.memory.apply(event, &self.ledger, standing);
        self.ledger.apply_with_notes(
            event,
            EventNotes {
                torn,
                root,
                is_stale,
            },
        );
    }

    /// What is open, and which thread opened it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The same, to reconcile it.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The hazards found so far, the most severe and then the most frequent first.
    #[must_use]
    pub fn hazards(
        &self,
        resolve: &dyn Fn(StackId) -> Stack,
        clock: &dyn Fn(u64) -> Timestamp,
    ) -> Vec<Hazard> {
        let mut found = self.found.clone();
        for (rule, incident) in self.sweeps.waiting() {
            let is_told = incident.once.is_some_and(|generation| {
                let key = incident.fd.map(|fd| (incident.process, fd, generation));
                key.is_some_and(|key| self.reported.contains(&key))
            });
            if !is_told {
                let entry = found.entry(incident.key(rule));
                entry.or_insert_with(|| (rule, incident.clone(), 0)).2 += 1;
            }
        }
        let hazards: Vec<(u64, Hazard)> = found
            .values()
            .map(|(rule, incident, count)| {
                (incident.at, incident.hazard(rule, *count, resolve, clock))
            })
            .collect();
        let mut hazards = repetition::merge(hazards);
        let grave = |hazard: &Hazard| std::cmp::Reverse((hazard.severity, hazard.count));
        hazards.sort_by_key(|(at, hazard)| (grave(hazard), *at));
        let hazards = hazards.into_iter().map(|(_, hazard)| hazard);
        let hazards = hazards.filter(|hazard| !lock_drop::is_of_sqlite(hazard));
        hazards.collect()
    }

    /// What could not be found, and why.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps = self.collected.gaps();
        if self.unreported > 0 {
            let what = counted(self.unreported, "more hazard");
            let why = format!("there are more than {MOST_HAZARDS} different hazards");
            gaps.push(Gap::new(what, why, "fix the first ones and trace again"));
        }
        if self.ledger.lost() > 0 {
            let what = format!("hazards among {}", counted(self.ledger.lost(), "event"));
            let why = "the events arrived faster than fdguard could read them";
            gaps.push(Gap::new(
                what,
                why,
                "trace for a shorter time or fewer processes",
            ));
        }
        gaps
    }

    fn raise(&mut self, rule: &'static Rule, incident: Incident) {
        if let Some((generation, fd)) = incident.once.zip(incident.fd) {
            if self.reported.len() >= MOST_REPORTED {
                self.reported.clear();
            }
            if !self.reported.insert((incident.process, fd, generation)) {
                return;
            }
        }
        if let Some((line, life)) = &incident.teaches {
            self.memory.note_close(Some(*line), life);
        }
        let key = incident.key(rule);
        if let Some((_, known, count)) = self.found.get_mut(&key) {
            *count = count.saturating_add(1);
            // A hazard that was harmless once may be dangerous later.
            known.severity = Some(known.severity(rule).max(incident.severity(rule)));
        } else if self.found.len() < MOST_HAZARDS {
            self.found.insert(key, (rule, incident, 1));
        } else {
            self.unreported = self.unreported.saturating_add(1);
        }
    }
}

/// What this use says about the habits of its line.
fn standing(context: &EventContext<'_>, is_stale: bool) -> UseStanding {
    match stale::orphan_hit(context) {
        Some(_) => UseStanding::Orphan,
        None if is_stale => UseStanding::Stale,
        None => UseStanding::Proper,
    }
}

/// Whether the event uses a number whose descriptor was taken from its thread, before or during the
/// call.
fn is_orphan(context: &EventContext<'_>) -> bool {
    let What::Use { fd, .. } = context.event.what else {
        return false;
    };
    let slot = context.slot(fd);
    context.is_about_earlier(fd)
        || slot.is_some_and(|slot| stale::orphaned(slot, context.event.thread).is_some())
}

/// The threads that are using the descriptor which this event closes.
fn torn(context: &EventContext<'_>) -> Vec<Tid> {
    let others = context.closes().into_iter().flat_map(|fd| {
        let inside = context
            .memory
            .others_inside(context.event, context.ledger, fd);
        inside.map(|inside| inside.actor.thread)
    });
    others.collect()
}

/// The thread to name for a close by a thread whose own descriptor of that number had been closed
/// under it.
fn root(context: &EventContext<'_>) -> Option<Actor> {
    let slot = context.slot(context.closes()?)?;
    stale::orphaned(slot, context.event.thread)?.named_closer()
}

/// Whether the event tries to close a number about which nothing is known.
fn is_blind(context: &EventContext<'_>) -> bool {
    let What::Close { fd, errno, .. } = context.event.what else {
        return false;
    };
    let is_known = |slot: &FdSlot| slot.current().is_some() || slot.past().next().is_some();
    errno == Some(Errno::Ebadf) && !context.slot(fd).is_some_and(is_known)
}

/// Whether the event tries to close the number of a directory stream that its thread has closed. A
/// list of `/proc/self/fd` contains the stream that reads it.
fn is_listing(context: &EventContext<'_>) -> bool {
    let What::Close { fd, errno, .. } = context.event.what else {
        return false;
    };
    let thread = context.event.thread;
    let last = context.slot(fd).and_then(|slot| slot.past().next());
    errno == Some(Errno::Ebadf)
        && last.is_some_and(|last| {
            let is_closer = last.closer.is_some_and(|closer| closer.thread == thread);
            last.life.call == OpenCall::Opendir && last.life.is_opened_by(thread) && is_closer
        })
}
