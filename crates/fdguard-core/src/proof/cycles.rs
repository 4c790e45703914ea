//! What the cycles of an exercise leave in a server: one descriptor per request, or a cache that
//! fills?
//!
//! The signal is what was opened in a cycle and is still open at the end, by identity. A leak
//! leaves descriptors from the first cycles as well as from the last; a pool or a cache that fills
//! stops leaving any; one that replaces its oldest, or a connection that is kept alive, leaves only
//! young ones.

use serde::Serialize;

use super::wording::descriptors;
use super::{Rule, RuleKind};
use crate::count::as_f64;
use crate::lint::Severity;

/// Descriptors that each request leaves.
pub const RULE: Rule = Rule {
    id: "leak-per-request",
    kind: RuleKind::Proof,
    severity: Severity::Critical,
    summary: "each cycle of the exercise leaves descriptors open in the server",
    cwe: Some(775),
    requirement: "R34",
    fix: Some("close what a request opens before answering it, on every path including errors"),
};

/// The least number of cycles that leave something: fewer prove nothing.
const LEAST_HITS: u64 = 4;
/// The probability that chance alone looks like fading.
const FADING: f64 = 0.01;
/// The probability that a leak passes for a full cache.
const MISSED: f64 = 0.02;
/// Two of them enclose 95 % of a normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;
/// One in this many cycles, at the end, is too recent to judge.
const YOUNG_SHARE: usize = 10;

/// How many descriptors a cycle leaves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Cycles that count: the last ones are too recent.
    pub cycles: u64,
    /// How many of them left something.
    pub hits: u64,
    /// How many descriptors they left.
    pub survivors: u64,
    /// Descriptors left per cycle.
    pub per_cycle: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// The judgement of one origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CycleOutcome {
    /// Nothing older is left open.
    Clean,
    /// It leaves something all the time.
    Leaks(Rate),
    /// It filled and stopped.
    Bounded(Rate),
    /// More cycles are needed.
    Undecided(Rate),
}

/// Judges one origin by the number of survivors of each cycle, first cycle first.
#[must_use]
pub fn judge(survivors: &[u64]) -> CycleOutcome {
    let young = (survivors.len() / YOUNG_SHARE).max(1);
    let counted = &survivors[..survivors.len().saturating_sub(young)];
    let rate = rate(counted);
    if rate.hits == 0 {
        return CycleOutcome::Clean;
    }
    let (first, second) = counted.split_at(counted.len() / 2);
    let (early, late) = (hits(first), hits(second));
    if late == 0 {
        // A leak as frequent as in the first half would have to be silent throughout the second by
        // chance.
        let share = as_f64(early) / as_f64(first.len() as u64);
        let silent = (1.0 - share).max(0.0).powf(as_f64(second.len() as u64));
        let has_stopped = rate.hits >= 3 && is_silent(counted.iter().rev().copied());
        return if silent < MISSED || has_stopped {
            CycleOutcome::Bounded(rate)
        } else {
            CycleOutcome::Undecided(rate)
        };
    }
    let share = as_f64(second.len() as u64) / as_f64(counted.len() as u64);
    let fades =
        at_most(late, early + late, share) < FADING || is_silent(counted.iter().rev().copied());
    // If only young ones are left, each was replaced before it could grow old.
    let is_replaced = early == 0 || is_silent(counted.iter().copied());
    if is_replaced || fades || rate.hits < LEAST_HITS || rate.low <= 0.0 {
        return CycleOutcome::Undecided(rate);
    }
    CycleOutcome::Leaks(rate)
}

/// Whether the cycles at this end left nothing for longer than chance explains, given how often the
/// others did.
fn is_silent(cycles: impl Iterator<Item = u64>) -> bool {
    let counts: Vec<u64> = cycles.collect();
    let all = counts.len();
    let silent = counts.iter().take_while(|count| **count == 0).count();
    // One more than there were: a single cycle without a survivor proves nothing.
    let share = as_f64(hits(&counts)) / as_f64((all - silent + 1) as u64);
    silent > 0 && (1.0 - share).max(0.0).powf(as_f64(silent as u64)) < FADING
}

fn hits(cycles: &[u64]) -> u64 {
    cycles.iter().filter(|count| **count > 0).count() as u64
}

fn rate(counted: &[u64]) -> Rate {
    let cycles = as_f64(counted.len().max(1) as u64);
    let survivors: u64 = counted.iter().sum();
    let mean = as_f64(survivors) / cycles;
    let squares: f64 = counted
        .iter()
        .map(|one| (as_f64(*one) - mean).powi(2))
        .sum();
    let spread = NORMAL_975 * (squares / (cycles - 1.0).max(1.0) / cycles).sqrt();
    Rate {
        cycles: counted.len() as u64,
        hits: hits(counted),
        survivors,
        per_cycle: rounded(mean),
        low: rounded((mean - spread).max(0.0)),
        high: rounded(mean + spread),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// The probability of at most `hits` of `all`, each with the probability `share`.
fn at_most(hits: u64, all: u64, share: f64) -> f64 {
    let mut term = (1.0 - share).powf(as_f64(all));
    let mut sum = term;
    for k in 1..=hits {
        term *= as_f64(all - k + 1) / as_f64(k) * share / (1.0 - share);
        sum += term;
    }
    sum
}

/// `one descriptor per request`, `3 descriptors per request`, `1 descriptor every 3 requests`.
#[must_use]
pub fn sentence(rate: &Rate, requests_per_cycle: u64) -> String {
    per_request(rate, requests_per_cycle, ("descriptor", "descriptors"))
}

/// The same for any other noun, given its singular and plural.
#[must_use]
pub fn per_request(rate: &Rate, requests_per_cycle: u64, (one, many): (&str, &str)) -> String {
    let requests = as_f64(requests_per_cycle.max(1));
    let each = rate.per_cycle / requests;
    if each >= 0.75 {
        let whole = each.round();
        let is_whole = (each - whole).abs() <= 0.15 * whole.max(1.0);
        return match (is_whole, whole <= 1.0) {
            (true, true) => format!("one {one} per request"),
            (true, false) => format!("{whole:.0} {many} per request"),
            (false, _) => format!("{each:.1} {many} per request"),
        };
    }
    format!("1 {one} every {:.0} requests", (1.0 / each).round())
}

/// The evidence in words.
#[must_use]
pub fn evidence(rate: &Rate) -> String {
    format!(
        "{} of {} cycles left {} still open: {} per cycle (95 % interval: {} to {})",
        rate.hits,
        rate.cycles,
        descriptors(rate.survivors),
        rate.per_cycle,
        rate.low,
        rate.high
    )
}

#[cfg(test)]
mod tests {
    use super::{CycleOutcome, judge, sentence};

    fn leaks(survivors: &[u64]) -> Option<String> {
        match judge(survivors) {
            CycleOutcome::Leaks(rate) => Some(sentence(&rate, 1)),
            _ => None,
        }
    }

    fn every(n: usize, cycles: usize) -> Vec<u64> {
        (0..cycles).map(|at| u64::from(at % n == 0)).collect()
    }

    #[test]
    fn r34_one_for_each_request_is_a_leak_and_the_sentence_says_so() {
        assert_eq!(leaks(&[1; 30]).unwrap(), "one descriptor per request");
        assert_eq!(leaks(&[3; 30]).unwrap(), "3 descriptors per request");
        assert_eq!(
            leaks(&every(3, 30)).unwrap(),
            "1 descriptor every 3 requests"
        );
        let CycleOutcome::Leaks(rate) = judge(&[6; 30]) else {
            panic!()
        };
        assert_eq!(sentence(&rate, 6), "one descriptor per request");
        assert_eq!((rate.per_cycle, rate.low, rate.high), (6.0, 6.0, 6.0));
    }

    #[test]
    fn a_pool_that_fills_is_bounded() {
        let mut pool = vec![1; 10];
        pool.extend([0; 20]);
        assert!(
            matches!(judge(&pool), CycleOutcome::Bounded(_)),
            "{:?}",
            judge(&pool)
        );
    }

    #[test]
    fn a_cache_that_was_full_after_three_cycles_is_bounded_and_one_leak_of_a_rare_kind_is_not() {
        let first = |hits: usize| (0..30).map(|at| u64::from(at < hits)).collect::<Vec<u64>>();
        assert!(matches!(judge(&first(3)), CycleOutcome::Bounded(_)));
        assert!(matches!(judge(&first(1)), CycleOutcome::Undecided(_)));
    }

    #[test]
    fn a_slow_fill_is_not_decided_before_it_stopped_for_as_long() {
        let mut pool = vec![1; 20];
        pool.extend([0; 10]);
        assert!(
            matches!(judge(&pool), CycleOutcome::Undecided(_)),
            "{:?}",
            judge(&pool)
        );
        pool.extend([0; 30]);
        assert!(
            matches!(judge(&pool), CycleOutcome::Bounded(_)),
            "{:?}",
            judge(&pool)
        );
    }

    #[test]
    fn what_is_only_young_is_clean_or_not_decided() {
        let mut kept_alive = vec![0; 29];
        kept_alive.push(4);
        assert_eq!(judge(&kept_alive), CycleOutcome::Clean);
        // The last ten of a cache that replaces its oldest.
        let mut replaced = vec![0; 20];
        replaced.extend([1; 10]);
        assert!(matches!(judge(&replaced), CycleOutcome::Undecided(_)));
    }

    #[test]
    fn a_rare_leak_needs_more_cycles_and_is_found_with_them() {
        assert_eq!(leaks(&every(20, 30)), None);
        assert!(matches!(judge(&every(20, 30)), CycleOutcome::Undecided(_)));
        // Six of the 108 that count.
        assert_eq!(
            leaks(&every(20, 120)).unwrap(),
            "1 descriptor every 18 requests"
        );
    }

    #[test]
    fn nothing_left_is_clean_however_few_the_cycles() {
        for cycles in 0..40 {
            assert_eq!(judge(&vec![0; cycles]), CycleOutcome::Clean);
        }
    }
}
