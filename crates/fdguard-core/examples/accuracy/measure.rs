//! Watches made-up processes and counts what was said of them.

use fdguard_core::Timeline;
use fdguard_core::judge::{self, Verdict};

use super::random::Random;
use super::scenarios::{Kind, Scenario, Truth, drip_under_a_dozen};

/// What leaked fewer times than this by the end of the watch is not held against the judgement.
const LEAST_LEAKS: usize = 10;
/// What was said of one kind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: &'static Kind,
    pub(crate) processes: u32,
    /// Said to be leaking at the end.
    pub(crate) leaking: u32,
    /// Said to be growing at the end.
    pub(crate) growing: u32,
    /// Said to be leaking at some time.
    pub(crate) ever: u32,
    /// For each that was ever called leaking: when, as a share of the watch, and how many were
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

/// How many processes of a kind are watched, from which seed, and how often each is judged on its
/// way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) each: u32,
    pub(crate) seed: u64,
    pub(crate) judged: u32,
}

/// Watches processes of a kind. `show` is told of each that is judged wrong.
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
    // Each process has its own seed, so that one can be looked at alone.
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
        // Judging each look costs much and says little more.
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

/// The gravest verdict on any track.
pub(crate) fn worst(timeline: &Timeline) -> Verdict {
    let judged = judge::judge(timeline);
    let verdicts = judged.iter().map(|found| found.verdict);
    verdicts.max().unwrap_or_default()
}

/// Seconds until a drip of `rate` a second is called a leak, under a tide of a dozen descriptors of
/// the same class that live for half a second; none where it is not within the watch.
pub(crate) fn seconds_to_detection(rate: f64, every: f64, seed: u64) -> Option<f64> {
    let seconds = (30.0 / rate).max(60.0);
    let mut scenario = drip_under_a_dozen(rate, every, (seconds, 0.5), seed);
    let judged = scenario.looks / 2;
    let (_, first) = watch(&mut scenario, judged);
    first.map(|(share, _)| share * seconds)
}
