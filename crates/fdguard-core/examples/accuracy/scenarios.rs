//! Kinds of randomly generated processes, each with its correct verdict.

use fdguard_core::{Class, TcpState};

use super::random::{Random, floor};
use super::simulate::{Process, Sources};
use super::source::{Pace, Source};
use super::{clean, leaks};

/// Units of time in a watch: the sources are described in these.
pub(crate) const UNITS: f64 = 20.0;

/// The correct verdict on a process at the end of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Truth {
    /// It leaks.
    Leaks,
    /// Neither leaking nor growing.
    Bounded,
    /// It grew until the end, by load: growing is right, leaking is not.
    MayGrow,
}

/// One simulated process, and how it is watched.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) process: Process,
    /// Seconds between two looks.
    pub(crate) every: f64,
    pub(crate) looks: u32,
}

/// A kind of process.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) truth: Truth,
    pub(crate) make: fn(&mut Random) -> Scenario,
}

/// Every kind: those that leak, and those that only look like it.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    leaks::KINDS.iter().chain(clean::KINDS)
}

pub(crate) const TCP: Class = Class::Tcp(TcpState::Established);
pub(crate) const SPOOL: &str = "/srv/spool/a";

/// Looks and the seconds between two: 20 s, a minute, five minutes, two days.
const WATCHES: [(u32, f64); 5] = [(80, 0.25), (80, 0.25), (120, 0.5), (300, 1.0), (576, 300.0)];

/// A source of descriptors of one class and target.
pub(crate) fn of(source: Source, class: Class, target: &str) -> (Source, Class, String) {
    (source, class, target.to_owned())
}

/// A leak of `rate` per unit that continues to the end.
pub(crate) fn drip(random: &mut Random, rate: f64) -> Source {
    let pace = if random.chance() {
        Pace::Regular
    } else {
        Pace::Poisson
    };
    Source::Leak {
        rate,
        batch: 1,
        from: 1.0,
        until: f64::INFINITY,
        pace,
    }
}

/// A process with these sources, in a watch of any length.
pub(crate) fn watched(random: &mut Random, sources: Sources) -> Scenario {
    let watch = random.whole(0, 4) as usize;
    let (looks, every) = WATCHES[watch];
    watched_for(random, sources, looks, every)
}

pub(crate) fn watched_for(
    random: &mut Random,
    mut sources: Sources,
    looks: u32,
    every: f64,
) -> Scenario {
    let stdio = Source::Pool {
        cap: 3,
        fill: 0.01,
        drop: f64::INFINITY,
    };
    sources.push(of(stdio, Class::Tty, "/dev/pts/*"));
    let mut process = Process::new(random.next(), sources);
    process.run_unseen(random.between(0.1, 0.6));
    Scenario {
        process,
        every,
        looks,
    }
}

/// A drip by the clock, of `rate` a second, under twelve of the same class with lives of `life`
/// seconds.
pub(crate) fn drip_under_a_dozen(
    rate: f64,
    every: f64,
    (seconds, life): (f64, f64),
    seed: u64,
) -> Scenario {
    let unit = seconds / UNITS;
    let leak = Source::Leak {
        rate: rate * unit,
        batch: 1,
        from: 0.0,
        until: f64::INFINITY,
        pace: Pace::Regular,
    };
    let tide = Source::Tide {
        level: 12.0,
        life: life / unit,
    };
    let sources = [leak, tide].map(|source| of(source, Class::Regular, SPOOL));
    let looks = floor(seconds / every);
    watched_for(&mut Random::new(seed), sources.into(), looks, every)
}

impl Scenario {
    /// The next look.
    pub(crate) fn look(&mut self) -> fdguard_core::timeline::Look {
        let units = UNITS / f64::from(self.looks);
        self.process.look(units, self.every / units)
    }
}
