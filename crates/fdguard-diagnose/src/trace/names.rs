//! What each descriptor was: its class and target at each sample, kept because a process cannot be
//! read after it ended, or by its link and the call that opened it.

use std::collections::HashMap;
use std::time::Duration;

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
    /// The least difference between the clocks of the tracer and of the watch: what a look adds to
    /// it is never negative.
    offset: Option<u64>,
}

/// What a number was when it was read. A look reads only what is new or has changed: that a number
/// is still in use at the next look does not mean that it still is the same descriptor.
#[derive(Clone, Debug)]
struct Sighting {
    /// The look that read it, by the monotonic clock.
    begun: u64,
    finished: u64,
    /// When the watch first saw this descriptor; distinguishes it from others with its number.
    since: Option<f64>,
    class: Class,
    target: Text,
}

/// How well a sighting fits a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    /// The look was under way when it was opened: it may have read the one before.
    Possible,
    /// It was read while it was open.
    Certain,
}

impl Sighting {
    /// How well it fits a descriptor that was open for this time.
    fn fit(&self, opened: u64, closed: Option<u64>) -> Option<Fit> {
        if self.finished <= opened || closed.is_some_and(|closed| self.begun >= closed) {
            return None;
        }
        let is_inside = self.begun > opened && closed.is_none_or(|closed| self.finished < closed);
        Some(if is_inside {
            Fit::Certain
        } else {
            Fit::Possible
        })
    }
}

/// The best of these, the latest first.
fn best(sightings: &[Sighting], opened: u64, closed: Option<u64>) -> Option<(Fit, &Sighting)> {
    let fits = sightings.iter().rev();
    let fits = fits.filter_map(|one| Some((one.fit(opened, closed)?, one)));
    fits.reduce(|best, next| if next.0 > best.0 { next } else { best })
}

impl FdNames {
    /// Adds a look that finished at this time of the monotonic clock.
    pub fn note_sample(&mut self, watch: &Watch, now: u64) {
        for subject in watch.subjects().filter(|one| one.gone.is_none()) {
            let begun = self.begun(subject.timeline.now(), now);
            let process = self.processes.entry(subject.process.pid).or_default();
            for (fd, held) in subject.timeline.live().iter() {
                let sightings = process.entry(fd).or_default();
                let is_known = |one: &Sighting| {
                    let is_same = one.class == held.class && one.target == held.target;
                    is_same && one.since == held.since
                };
                if sightings.last().is_some_and(is_known) {
                    continue;
                }
                if sightings.len() == MOST {
                    sightings.remove(0);
                }
                sightings.push(Sighting {
                    begun,
                    finished: now,
                    since: held.since,
                    class: held.class.clone(),
                    target: held.target.clone(),
                });
            }
        }
    }

    /// When a look began, which the watch counts in seconds since its own beginning.
    fn begun(&mut self, at: f64, now: u64) -> u64 {
        let at = Duration::try_from_secs_f64(at).unwrap_or_default();
        let at = u64::try_from(at.as_nanos()).unwrap_or(0);
        let offset = now.saturating_sub(at);
        let offset = self.offset.map_or(offset, |least| least.min(offset));
        self.offset = Some(offset);
        offset.saturating_add(at)
    }

    /// When a look was, by the monotonic clock; 0 before the first one. `None` is a descriptor from
    /// before the watch.
    pub(super) fn time_of(&self, at: Option<f64>) -> u64 {
        let at = at.and_then(|at| Duration::try_from_secs_f64(at).ok());
        let at = at.map(|at| u64::try_from(at.as_nanos()).unwrap_or(0));
        let time = self.offset.zip(at);
        time.map_or(0, |(offset, at)| offset.saturating_add(at))
    }

    /// The name of a descriptor: as it was seen, else by its link, else by the call that opened it.
    #[must_use]
    pub fn name(&self, process: &TracedProcess, one: &Lifetime) -> (Option<Class>, Option<Text>) {
        let closed = one.closed.map(|closed| {
            let lived = Duration::try_from_secs_f64(closed.real - one.opened.real);
            let lived = lived.map_or(0, |lived| u64::try_from(lived.as_nanos()).unwrap_or(0));
            one.at.saturating_add(lived)
        });
        let sightings = self.processes.get(&process.pid);
        let sightings = sightings.and_then(|numbers| numbers.get(&one.fd));
        let seen = sightings.and_then(|all| best(all, one.at, closed));
        let seen = seen.filter(|(_, seen)| !matches!(seen.class, Class::Other(_)));
        let key = (one.fd, one.at);
        // `open` does not reveal the kind of file.
        let by_call = || {
            let class = process.classes.get(&key).cloned();
            class.filter(|class| *class != Class::Regular || Class::from_call(one.call).is_some())
        };
        match (seen, process.links.get(&key)) {
            (Some((Fit::Certain, seen)), _) | (Some((_, seen)), None) => {
                (Some(seen.class.clone()), Some(seen.target.clone()))
            }
            (_, Some(text)) => {
                let (class, target) = link::of_link(text.as_bytes());
                (class.or_else(by_call), Some(target))
            }
            (None, None) => (by_call().or_else(|| Class::from_call(one.call)), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::{Class, Text};

    use super::{FdNames, Fit, Sighting, best};

    fn sighting(begun: u64, finished: u64, target: &str) -> Sighting {
        Sighting {
            begun,
            finished,
            since: None,
            class: Class::Regular,
            target: Text::from(target),
        }
    }

    fn named(all: &[Sighting], opened: u64, closed: Option<u64>) -> Option<(Fit, String)> {
        let (fit, seen) = best(all, opened, closed)?;
        Some((fit, seen.target.to_lossy().into_owned()))
    }

    #[test]
    fn a_number_that_was_reused_does_not_keep_its_old_name() {
        let all = [sighting(10, 20, "/etc/first")];
        assert_eq!(
            named(&all, 5, Some(30)),
            Some((Fit::Certain, "/etc/first".to_owned()))
        );
        // Opened after that look; no later one has read the number.
        assert_eq!(named(&all, 40, None), None);
        let all = [
            sighting(10, 20, "/etc/first"),
            sighting(50, 60, "/dev/null"),
        ];
        assert_eq!(
            named(&all, 40, None),
            Some((Fit::Certain, "/dev/null".to_owned()))
        );
        assert_eq!(
            named(&all, 5, Some(30)),
            Some((Fit::Certain, "/etc/first".to_owned()))
        );
    }

    #[test]
    fn what_was_read_while_the_number_changed_is_only_possible() {
        let all = [sighting(10, 20, "/a")];
        assert_eq!(
            named(&all, 15, None),
            Some((Fit::Possible, "/a".to_owned()))
        );
        assert_eq!(
            named(&all, 5, Some(15)),
            Some((Fit::Possible, "/a".to_owned()))
        );
        // A certain one wins, wherever it is.
        let all = [sighting(12, 13, "/sure"), sighting(19, 30, "/unsure")];
        assert_eq!(
            named(&all, 5, Some(25)),
            Some((Fit::Certain, "/sure".to_owned()))
        );
    }

    #[test]
    fn the_beginning_of_a_look_is_never_after_its_end() {
        let mut names = FdNames::default();
        let second = 1_000_000_000;
        // The first look took half a second, the second one 10 ms.
        assert_eq!(
            names.begun(0.0, 100 * second + second / 2),
            100 * second + second / 2
        );
        assert_eq!(
            names.begun(1.0, 101 * second + second / 100),
            101 * second + second / 100
        );
        // From then on a slow look is known to have begun long ago.
        assert_eq!(names.begun(2.0, 104 * second), 102 * second + second / 100);
    }
}
