//! Watches made-up processes and counts what was said of them.

use std::fmt::Write as _;

use fdguard_core::Timeline;
use fdguard_core::judge::{self, Verdict};

use super::scenarios::{KINDS, Kind, Scenario};
use super::simulate::Random;

/// What was said of one kind.
#[derive(Debug)]
pub struct Outcome {
    pub kind: &'static Kind,
    pub processes: u32,
    /// Said to be leaking at the end.
    pub leaking: u32,
    /// Said to be growing at the end.
    pub growing: u32,
    /// Said to be leaking at some time before the end.
    pub ever: u32,
    /// Seconds until a leak was first called one, for each that was.
    pub seconds: Vec<f64>,
    /// Descriptors that were lost until then.
    pub lost: Vec<f64>,
}

/// Runs `each` processes of every kind.
pub fn all(each: u32, seed: u64) -> Vec<Outcome> {
    let mut random = Random::new(seed);
    KINDS
        .iter()
        .map(|kind| one(kind, each, &mut random))
        .collect()
}

fn one(kind: &'static Kind, each: u32, random: &mut Random) -> Outcome {
    let mut outcome = Outcome {
        kind,
        processes: each,
        leaking: 0,
        growing: 0,
        ever: 0,
        seconds: Vec::new(),
        lost: Vec::new(),
    };
    for number in 0..each {
        let scenario = (kind.make)(random);
        let leak = scenario.leak;
        let (last, first) = watch(scenario);
        if std::env::var_os("SHOW").is_some() && (last == Verdict::Leaking) != kind.leaks {
            eprintln!("{} #{number}: {last:?} {leak:?}", kind.name);
        }
        outcome.leaking += u32::from(last == Verdict::Leaking);
        outcome.growing += u32::from(last == Verdict::Growing);
        outcome.ever += u32::from(first.is_some());
        if let Some((first, leak)) = first.zip(leak) {
            outcome.seconds.push(first);
            outcome.lost.push(first * leak);
        }
    }
    outcome.seconds.sort_by(f64::total_cmp);
    outcome.lost.sort_by(f64::total_cmp);
    outcome
}

/// The verdict at the end, and when it was first "leaking".
fn watch(mut scenario: Scenario) -> (Verdict, Option<f64>) {
    let mut timeline = Timeline::new();
    let mut first = None;
    let mut last = Verdict::Unknown;
    for number in 1..=scenario.looks {
        timeline.observe(&scenario.process.look(scenario.every));
        // Judging each look costs much and says little more than every second.
        if number % 4 == 0 || number == scenario.looks {
            last = worst(&timeline);
            if last == Verdict::Leaking && first.is_none() {
                first = Some(timeline.watched());
            }
        }
    }
    (last, first)
}

fn worst(timeline: &Timeline) -> Verdict {
    let verdicts = judge::judge(timeline)
        .into_iter()
        .map(|found| found.verdict);
    verdicts.max().unwrap_or_default()
}

/// The table of the accuracy page.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| process | right | called leaking | called growing | leaking at some time | seconds to detection, median / 95 % |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for outcome in outcomes {
        let right = if outcome.kind.leaks {
            outcome.leaking
        } else {
            outcome.processes - outcome.leaking - outcome.growing
        };
        let share = |count: u32| 100.0 * f64::from(count) / f64::from(outcome.processes);
        let times = if outcome.seconds.is_empty() {
            "–".to_owned()
        } else {
            format!(
                "{:.0} / {:.0}",
                at(&outcome.seconds, 0.5),
                at(&outcome.seconds, 0.95)
            )
        };
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {times} |",
            outcome.kind.name,
            share(right),
            share(outcome.leaking),
            share(outcome.growing),
            share(outcome.ever),
        );
    }
    text
}

fn at(sorted: &[f64], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted
        .get(index.min(sorted.len() - 1))
        .copied()
        .unwrap_or(f64::NAN)
}
