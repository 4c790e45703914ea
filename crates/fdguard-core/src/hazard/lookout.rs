//! The lookout: keeps a ledger and shows every event to every check.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::incident::{Incident, Key};
use super::memory::Memory;
use super::overlap::Overlaps;
use super::scene::Scene;
use super::sweep::Sweeps;
use super::{HAZARDS, Hazard, HazardRule, lock_drop, stale};
use crate::event::{Collected, Errno, Event, StackId, Tid, What};
use crate::gap::Gap;
use crate::ledger::{Actor, Aside, Generation, Ledger, Slot};
use crate::origin::Stack;
use crate::{Fd, ProcKey};

/// So many different hazards are kept; of more only their number.
const MOST_HAZARDS: usize = 1024;

/// So many wrong closes are remembered, lest one be told twice.
const MOST_TOLD: usize = 4096;

/// Watches for hazards.
#[derive(Clone, Debug, Default)]
pub struct Lookout {
    collected: Collected,
    ledger: Ledger,
    memory: Memory,
    sweeps: Sweeps,
    overlaps: Overlaps,
    found: BTreeMap<Key, (&'static HazardRule, Incident, u64)>,
    told: BTreeSet<(ProcKey, Fd, Generation)>,
    untold: u64,
}

impl Lookout {
    /// One for events of these kinds.
    #[must_use]
    pub fn new(collected: Collected) -> Self {
        Self {
            collected,
            ..Self::default()
        }
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        self.take_as(event, false);
    }

    /// Takes the next event, which protection kept from doing harm: what is found in it is told as prevented.
    pub fn take_prevented(&mut self, event: &Event) {
        self.take_as(event, true);
    }

    /// Takes an event that is told after later ones, in whose place [`What::Missing`] was told. It corrects what is known
    /// of its number; nothing is concluded from it.
    pub fn take_late(&mut self, event: &Event) {
        self.ledger.take_late(event);
    }

    fn take_as(&mut self, event: &Event, prevented: bool) {
        for (rule, incident) in self.overlaps.take(event, &self.ledger) {
            self.raise(rule, incident);
        }
        let scene = Scene {
            event,
            ledger: &self.ledger,
            memory: &self.memory,
        };
        let is_stale = stale::stale_use(&scene).is_some() || is_orphan(&scene);
        let (torn, root) = (torn(&scene), root(&scene));
        let is_blind = is_blind(&scene);
        let found = HAZARDS.iter().flat_map(|rule| {
            let incidents = (rule.check)(&scene);
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
        let over = self.sweeps.take(event, is_blind, waiting);
        for (rule, incident) in certain.into_iter().chain(over) {
            self.raise(rule, incident);
        }
        self.memory.take(event, &self.ledger, is_stale);
        self.ledger.take_with(
            event,
            Aside {
                torn,
                root,
                is_stale,
            },
        );
    }

    /// What is open, and who opened it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The same, to reconcile it.
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// What was found so far, the gravest and then the most frequent first.
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
                key.is_some_and(|key| self.told.contains(&key))
            });
            if !is_told {
                let entry = found.entry(incident.key(rule));
                entry.or_insert_with(|| (rule, incident.clone(), 0)).2 += 1;
            }
        }
        let mut hazards: Vec<(u64, Hazard)> = found
            .values()
            .map(|(rule, incident, count)| {
                (incident.at, incident.hazard(rule, *count, resolve, clock))
            })
            .collect();
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
        if self.untold > 0 {
            let what = format!("{} more hazards", self.untold);
            let why = format!("there are more than {MOST_HAZARDS} different hazards");
            gaps.push(Gap::new(what, why, "fix the first ones and trace again"));
        }
        if self.ledger.lost() > 0 {
            let what = format!("hazards among {} events", self.ledger.lost());
            let why = "the events arrived faster than fdguard could read them";
            gaps.push(Gap::new(
                what,
                why,
                "trace for a shorter time or fewer processes",
            ));
        }
        gaps
    }

    fn raise(&mut self, rule: &'static HazardRule, incident: Incident) {
        if let Some((generation, fd)) = incident.once.zip(incident.fd) {
            if self.told.len() >= MOST_TOLD {
                self.told.clear();
            }
            if !self.told.insert((incident.process, fd, generation)) {
                return;
            }
        }
        if let Some((line, life)) = &incident.teaches {
            self.memory.note_close(Some(*line), life);
        }
        let key = incident.key(rule);
        if let Some((_, known, count)) = self.found.get_mut(&key) {
            *count = count.saturating_add(1);
            // What was harmless once may be dangerous later.
            known.severity = Some(known.severity(rule).max(incident.severity(rule)));
        } else if self.found.len() < MOST_HAZARDS {
            self.found.insert(key, (rule, incident, 1));
        } else {
            self.untold = self.untold.saturating_add(1);
        }
    }
}

/// Whether the event uses a number whose descriptor was taken from its thread, before or during the call.
fn is_orphan(scene: &Scene<'_>) -> bool {
    let What::Use { fd, .. } = scene.event.what else {
        return false;
    };
    let slot = scene.slot(fd);
    scene.is_about_earlier(fd)
        || slot.is_some_and(|slot| stale::orphaned(slot, scene.event.thread).is_some())
}

/// The threads from under which this event closes a descriptor.
fn torn(scene: &Scene<'_>) -> Vec<Tid> {
    let others = scene.closes().into_iter().flat_map(|fd| {
        let inside = scene.memory.others_inside(scene.event, scene.ledger, fd);
        inside.map(|inside| inside.actor.thread)
    });
    others.collect()
}

/// Who is to be named for a close by one whose own descriptor at that number had been taken from it.
fn root(scene: &Scene<'_>) -> Option<Actor> {
    let slot = scene.slot(scene.closes()?)?;
    stale::orphaned(slot, scene.event.thread)?.named_closer()
}

/// Whether the event tries to close a number of which nothing was ever known.
fn is_blind(scene: &Scene<'_>) -> bool {
    let What::Death { fd, errno, .. } = scene.event.what else {
        return false;
    };
    let is_known = |slot: &Slot| slot.current().is_some() || slot.past().next().is_some();
    errno == Some(Errno::Ebadf) && !scene.slot(fd).is_some_and(is_known)
}
