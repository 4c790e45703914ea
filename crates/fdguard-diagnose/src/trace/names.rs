//! What each descriptor was: its class and target at each sample, kept because a process cannot be
//! read after it ended, or by its link and the call that opened it.

use std::collections::HashMap;

use fdguard_core::lifetimes::Lifetime;
use fdguard_core::watch::Watch;
use fdguard_core::{Class, Fd, Pid, Text};
use fdguard_trace::TracedProcess;

use crate::link;

/// How many sightings of one number are kept.
const MOST: usize = 4;

/// The descriptors seen in every process.
#[derive(Debug, Default)]
pub struct FdNames {
    processes: HashMap<Pid, HashMap<Fd, Vec<Sighting>>>,
}

/// What a number was seen to be, for some time.
#[derive(Clone, Debug)]
struct Sighting {
    first: u64,
    last: u64,
    class: Class,
    target: Text,
}

impl FdNames {
    /// Adds a look that finished at this time of the monotonic clock.
    pub fn note_sample(&mut self, watch: &Watch, now: u64) {
        for subject in watch.subjects().filter(|one| one.gone.is_none()) {
            let process = self.processes.entry(subject.process.pid).or_default();
            for (fd, held) in subject.timeline.live().iter() {
                let sightings = process.entry(fd).or_default();
                let is_same =
                    |one: &&mut Sighting| one.class == held.class && one.target == held.target;
                if let Some(same) = sightings.last_mut().filter(is_same) {
                    same.last = now;
                    continue;
                }
                if sightings.len() == MOST {
                    sightings.remove(0);
                }
                sightings.push(Sighting {
                    first: now,
                    last: now,
                    class: held.class.clone(),
                    target: held.target.clone(),
                });
            }
        }
    }

    /// The name of a descriptor: as last seen, else by its link, else by the call that opened it.
    #[must_use]
    pub fn name(&self, process: &TracedProcess, one: &Lifetime) -> (Option<Class>, Option<Text>) {
        let closed = one.closed.map(|closed| {
            let lived = std::time::Duration::try_from_secs_f64(closed.real - one.opened.real);
            let lived = lived.map_or(0, |lived| u64::try_from(lived.as_nanos()).unwrap_or(0));
            one.at.saturating_add(lived)
        });
        let sightings = self.processes.get(&process.pid);
        let sightings = sightings.and_then(|numbers| numbers.get(&one.fd));
        let is_it = |seen: &&Sighting| {
            seen.last > one.at && closed.is_none_or(|closed| seen.first < closed)
        };
        let seen = sightings.and_then(|all| all.iter().rev().find(is_it));
        let key = (one.fd, one.at);
        // `open` does not reveal the kind of file.
        let by_call = || {
            let class = process.classes.get(&key).cloned();
            class.filter(|class| *class != Class::Regular || Class::from_call(one.call).is_some())
        };
        match (seen, process.links.get(&key)) {
            (Some(seen), _) if !matches!(seen.class, Class::Other(_)) => {
                (Some(seen.class.clone()), Some(seen.target.clone()))
            }
            (_, Some(text)) => {
                let (class, target) = link::of_link(text.as_bytes());
                (class.or_else(by_call), Some(target))
            }
            _ => (by_call().or_else(|| Class::from_call(one.call)), None),
        }
    }
}
