//! The tables of the accuracy page.

use std::fmt::Write as _;

use super::measure::Outcome;
use super::random::floor;
use super::scenarios::Truth;

/// The verdicts on each kind, and on all together.
pub(crate) fn kinds(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| process | wrong at the end | leaking | growing | leaking at some time | share of the watch until found, median / 95 % | lost until found, median / 95 % |\n| --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for outcome in outcomes {
        let share = |count: u32| 100.0 * f64::from(count) / f64::from(outcome.processes.max(1));
        let found = if outcome.kind.truth == Truth::Leaks {
            found(outcome)
        } else {
            "– | –".to_owned()
        };
        let _ = writeln!(
            text,
            "| {} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {found} |",
            outcome.kind.name,
            share(outcome.wrong()),
            share(outcome.leaking),
            share(outcome.growing),
            share(outcome.ever),
        );
    }
    let missed = rate(outcomes, true);
    let alarms = rate(outcomes, false);
    let _ = writeln!(
        text,
        "\nLeaks missed: {missed:.2} %. False alarms: {alarms:.2} %."
    );
    text
}

/// Percentage judged wrong, of those that leak or of those that do not.
pub(crate) fn rate(outcomes: &[Outcome], leaks: bool) -> f64 {
    let chosen = || {
        outcomes
            .iter()
            .filter(|it| (it.kind.truth == Truth::Leaks) == leaks)
    };
    let wrong: u32 = chosen().map(Outcome::wrong).sum();
    let all: u32 = chosen().map(|outcome| outcome.processes).sum();
    100.0 * f64::from(wrong) / f64::from(all.max(1))
}

fn found(outcome: &Outcome) -> String {
    let shares: Vec<f64> = outcome
        .first
        .iter()
        .map(|(share, _)| 100.0 * share)
        .collect();
    let mut lost: Vec<f64> = outcome.first.iter().map(|(_, lost)| *lost).collect();
    lost.sort_by(f64::total_cmp);
    format!(
        "{:.0} / {:.0} % | {:.0} / {:.0}",
        at(&shares, 0.5),
        at(&shares, 0.95),
        at(&lost, 0.5),
        at(&lost, 0.95)
    )
}

/// The quantile of a sorted list: `share` of the values are below it.
pub(crate) fn at(sorted: &[f64], share: f64) -> f64 {
    let index = floor(sorted.len() as f64 * share) as usize;
    let index = index.min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or(f64::NAN)
}
