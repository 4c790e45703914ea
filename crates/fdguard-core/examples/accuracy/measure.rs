//! Watches simulated processes and counts the verdicts.

use fdguard_core::Timeline;
use fdguard_core::judge::{self, Verdict};

use super::random::Random;
use super::scenarios::{Kind, Scenario, Truth, drip_under_a_dozen};

/// Processes that leaked fewer times than this by the end of the watch do not count as missed.
const LEAST_LEAKS: usize = 10;
/// The verdicts on one kind of process.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: &'static Kind,
    pub(crate) processes: u32,
    /// Judged leaking at the end.
    pub(crate) leaking: u32,
    /// Judged growing at the end.
    pub(crate) growing: u32,
    /// Judged leaking at any time.
    pub(crate) ever: u32,
    /// For each process ever judged leaking: when, as a share of the watch, and how many it had
    /// lost.
    pub(crate) first: Vec<(f64, f64)>,
}

impl Outcome {
    /// How many were judged wrong at the end.
    pub(crate) fn wrong(&self) -> u32 {
        match self.kind.truth {
            Truth::Leaks => self.processes - self.leaking,
            Truth::Bounded => self.leaking + self.growing,
            Truth::MayGrow => self.leaking,
        }
    }
}

/// How many processes of a kind are watched, from which seed, and how often each is judged before
/// its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) each: u32,
    pub(crate) seed: u64,
    pub(crate) judged: u32,
}

/// Watches processes of a kind. Calls `show` for each one judged wrong.
pub(crate) fn one(
    kind: &'static Kind,
    effort: Effort,
    show: &mut dyn FnMut(u64, Verdict),
) -> Outcome {
    let mut outcome = Outcome {
        kind,
        processes: 0,
        leaking: 0,
        growing: 0,
        ever: 0,
        first: Vec::new(),
    };
    // Each process has its own seed, so that it can be examined alone.
    let mut number = effort.seed.wrapping_mul(1_000_003);
    while outcome.processes < effort.each {
        number += 1;
        let mut scenario = (kind.make)(&mut Random::new(number));
        let (last, first) = watch(&mut scenario, effort.judged);
        if kind.truth == Truth::Leaks && scenario.process.leaks() < LEAST_LEAKS {
            continue;
        }
        let right = outcome.processes - outcome.wrong();
        outcome.processes += 1;
        outcome.leaking += u32::from(last == Verdict::Leaking);
        outcome.growing += u32::from(last == Verdict::Growing);
        outcome.ever += u32::from(first.is_some());
        outcome.first.extend(first);
        if outcome.processes - outcome.wrong() == right {
            show(number, last);
        }
    }
    outcome
        .first
        .sort_by(|one, other| one.0.total_cmp(&other.0));
    outcome
}

/// The verdict at the end, and when it was first "leaking".
pub(crate) fn watch(scenario: &mut Scenario, judged: u32) -> (Verdict, Option<(f64, f64)>) {
    let mut timeline = Timeline::new();
    let mut first = None;
    let mut last = Verdict::Unknown;
    for number in 1..=scenario.looks {
        timeline.observe(&scenario.look());
        // Judging every look is expensive and adds little.
        if number.is_multiple_of((scenario.looks / judged).max(2)) || number == scenario.looks {
            last = worst(&timeline);
            if last == Verdict::Leaking && first.is_none() {
                let share = f64::from(number) / f64::from(scenario.looks);
                first = Some((share, scenario.process.lost() as f64));
            }
        }
    }
    (last, first)
}

/// The most severe verdict on any track.
pub(crate) fn worst(timeline: &Timeline) -> Verdict {
    let judged = judge::judge(timeline);
    let verdicts = judged.iter().map(|found| found.verdict);
    verdicts.max().unwrap_or_default()
}

/// Seconds until a drip of `rate` a second is called a leak, under a tide of a dozen descriptors of
/// the same class that live for half a second; none if it is not detected within the watch.
pub(crate) fn seconds_to_detection(rate: f64, every: f64, seed: u64) -> Option<f64> {
    let seconds = (30.0 / rate).max(60.0);
    let mut scenario = drip_under_a_dozen(rate, every, (seconds, 0.5), seed);
    let judged = scenario.looks / 2;
    let (_, first) = watch(&mut scenario, judged);
    first.map(|(share, _)| share * seconds)
}
