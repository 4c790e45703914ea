//! What was open when a process ended: left by mistake, or held on purpose?
//!
//! A program need not close what the kernel closes for it, and nobody can read intentions. So each
//! place in the code is judged by what it did with its descriptors: see decision 023.

use super::cycles::{self, Outcome};
use super::wording::{descriptors, place_of};
use super::{Judged, ProofRule, Remains, own};
use crate::count::as_f64;
use crate::lint::Severity;
use crate::origin::Origin;
use crate::{Class, Fd, Pid, Text};

/// Descriptors that a program forgot.
pub const RULE: ProofRule = ProofRule {
    id: "leftover-descriptor",
    severity: Severity::Warning,
    summary: "the program ended with descriptors open that it had let go of",
    cwe: Some(775),
    requirement: "R34",
    fix: "close it on every path out of the function that owns it, the failing ones too",
};

/// So many must have been closed before "the oldest goes first" is a habit.
const HABIT: u64 = 8;
/// The same for a thread that was caught between opening and closing.
const THREAD_HABIT: u64 = 3;
/// By how much the oldest may be older than an even pace would have it: of their number, and of what was closed.
const SLACK: f64 = 1.25;
const UNEVEN: f64 = 0.05;
/// A cache has replaced one in so many of what it holds, before it is known to replace; and those that it closed were opened
/// before the oldest that it holds, as far as an even pace tells.
const REPLACED: u64 = 5;
const BEFORE: f64 = 0.6;
/// A life is cut into so many parts to see when what is left was opened, and fewer of them tell nothing.
const BINS: usize = 30;
const LEAST_ARRIVED: usize = 8;
/// A thread that waits for its turn on a busy machine, in seconds.
const STALLED: f64 = 0.25;

/// The life of a process.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// How long it ran, in seconds.
    pub lived: f64,
    /// Whether it was looked at often enough to tell what grows from what is held.
    pub has_history: bool,
    /// Whether a signal ended it.
    pub was_cut_off: bool,
}

/// A place in the code and what it left open.
#[derive(Clone, Debug)]
pub struct Place {
    /// Where; its counts are of this process.
    pub origin: Origin,
    /// What is left.
    pub left: Vec<Left>,
}

/// One descriptor that was open at the end.
#[derive(Clone, Debug)]
pub struct Left {
    /// Its number.
    pub fd: Fd,
    /// What it is, where somebody saw it.
    pub class: Option<Class>,
    /// What it points at, where somebody saw it.
    pub target: Option<Text>,
    /// The call that opened it.
    pub call: String,
    /// For how many seconds it was open.
    pub age: f64,
    /// Whether the first thread opened it.
    pub by_main: bool,
    /// Whether it is one of those that the history shows growing.
    pub grew: bool,
}

/// Judges what one place left, class by class. `strict` asks as valgrind does: whatever the program's own code
/// left open counts, however long it ran.
#[must_use]
pub fn judge(life: &Life, place: &Place, strict: bool) -> Vec<Remains> {
    let (grown, rest): (Vec<&Left>, Vec<&Left>) = place.left.iter().partition(|one| one.grew);
    let all: Vec<&Left> = place.left.iter().collect();
    // Looked at from outside, a cache that fills and then replaces can pass for a leak, and a leak on a busy machine for a pool
    // that fills. The line's own account is exact.
    if !grown.is_empty() && is_rolling(life, place, &all) {
        return by_class(life, place, &all, Judged::Rolling);
    }
    if !grown.is_empty() && has_stopped(&all) {
        return by_class(life, place, &all, Judged::Held);
    }
    if life.has_history
        && !life.was_cut_off
        && keeps_arriving(life, &all)
        && !is_rolling(life, place, &all)
    {
        return by_class(life, place, &all, Judged::Grew);
    }
    let judged = judge_rest(life, place, &rest, strict);
    let mut remains = by_class(life, place, &grown, Judged::Grew);
    remains.extend(by_class(life, place, &rest, judged));
    remains
}

fn judge_rest(life: &Life, place: &Place, rest: &[&Left], strict: bool) -> Judged {
    if !own::is_programs(&place.origin.stack) {
        return Judged::Runtime;
    }
    if life.was_cut_off {
        return Judged::CutOff;
    }
    if life.has_history && !strict {
        return Judged::Held;
    }
    let (closed, count) = (place.origin.closed, rest.len() as u64);
    let by_thread = rest.iter().all(|one| !one.by_main);
    let is_fresh = || is_youngest(life, place, rest) || oldest(rest) <= STALLED;
    if closed == 0 {
        Judged::Left
    } else if is_rolling(life, place, rest) {
        Judged::Rolling
    } else if by_thread && closed >= THREAD_HABIT.max(count) && is_fresh() {
        Judged::InFlight
    } else {
        Judged::Strayed
    }
}

/// Whether the place is used to closing, and these are merely the last ones: those that were closed had all been opened before.
fn is_rolling(life: &Life, place: &Place, left: &[&Left]) -> bool {
    let (closed, count) = (place.origin.closed, left.len() as u64);
    let is_habit = closed >= HABIT && closed * REPLACED >= count;
    let pace = as_f64(place.origin.opened) / life.lived.max(f64::EPSILON);
    let before = pace * (life.lived - oldest(left));
    is_habit && is_youngest(life, place, left) && before >= BEFORE * as_f64(closed)
}

/// How many of what is left were opened in each part of the time since the first of them.
fn arrivals(left: &[&Left]) -> [u64; BINS] {
    let span = oldest(left).max(f64::EPSILON);
    let mut arrivals = [0_u64; BINS];
    for one in left {
        let share = 1.0 - one.age / span;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of the bins, not negative"
        )]
        let bin = (share.max(0.0) * BINS as f64) as usize;
        arrivals[bin.min(BINS - 1)] += 1;
    }
    arrivals
}

/// Whether what is left was opened early, and then nothing for longer than chance has it: a pool that is full.
fn has_stopped(left: &[&Left]) -> bool {
    matches!(cycles::judge(&arrivals(left)), Outcome::Bounded(_))
}

/// Whether what is left was opened all over the life of the process, as often late as early. A pool fills and stops, what is
/// replaced now and then is mostly young.
fn keeps_arriving(life: &Life, left: &[&Left]) -> bool {
    if left.len() < LEAST_ARRIVED {
        return false;
    }
    let arrivals = arrivals(left);
    let leaks = match cycles::judge(&arrivals) {
        Outcome::Leaks(rate) => rate.hits >= LEAST_ARRIVED as u64,
        _ => false,
    };
    // Those of the last moments are in use.
    let (early, late) = arrivals[..BINS - BINS / 10].split_at(BINS / 2 - BINS / 20);
    leaks && life.lived > 0.0 && !cycles::is_more_late(early.iter().sum(), late.iter().sum())
}

/// Whether these are the ones that the place opened last: at an even pace, so many openings ago began the oldest.
fn is_youngest(life: &Life, place: &Place, left: &[&Left]) -> bool {
    let pace = as_f64(place.origin.opened) / life.lived.max(f64::EPSILON);
    let expected = SLACK * as_f64(left.len() as u64 + 1) + UNEVEN * as_f64(place.origin.closed);
    pace * oldest(left) <= expected
}

fn oldest(left: &[&Left]) -> f64 {
    left.iter().map(|one| one.age).fold(0.0, f64::max)
}

fn by_class(life: &Life, place: &Place, left: &[&Left], judged: Judged) -> Vec<Remains> {
    let mut classes: Vec<Option<&Class>> = left.iter().map(|one| one.class.as_ref()).collect();
    classes.sort_unstable();
    classes.dedup();
    let of_class = |class: Option<&Class>| -> Vec<&Left> {
        let of = left.iter().filter(|one| one.class.as_ref() == class);
        of.copied().collect()
    };
    let groups = classes.into_iter().map(|class| (class, of_class(class)));
    groups
        .map(|(class, group)| Remains {
            pid: life.pid,
            comm: life.comm.clone(),
            class: class.cloned(),
            target: common(&group),
            call: group.first().map_or(String::new(), |one| one.call.clone()),
            count: group.len() as u64,
            fds: group.iter().map(|one| one.fd).collect(),
            judged,
            why: why(judged, place, group.len() as u64),
            origin: Some(place.origin.clone()),
            exercise: None,
            per_cycle: None,
            allowed_by: None,
        })
        .collect()
}

/// The target that they all have.
fn common(group: &[&Left]) -> Option<Text> {
    let first = group.first()?.target.as_ref()?;
    let is_same = group.iter().all(|one| one.target.as_ref() == Some(first));
    is_same.then(|| first.clone())
}

fn why(judged: Judged, place: &Place, count: u64) -> String {
    let from = place_of(Some(&place.origin));
    let (opened, closed) = (place.origin.opened, place.origin.closed);
    let some = descriptors(count);
    match judged {
        Judged::Grew | Judged::PerCycle => {
            format!("{some} from {from}, of those that became more and more")
        }
        Judged::Left => format!(
            "{some} from {from} open when the program ended; none of the {opened} that this line opened was closed"
        ),
        Judged::Strayed => format!(
            "{some} from {from} open when the program ended, although {closed} of the {opened} that this line opened were closed"
        ),
        Judged::Allowed => format!("{some} from {from}, allowed"),
        Judged::Held => {
            format!("{some} from {from}, no more of them than long before the end: held on purpose")
        }
        Judged::Rolling => format!(
            "{some} from {from}, the last of {opened}: {closed} older ones were closed one after the other"
        ),
        Judged::InFlight => format!("{some} from {from}, in use by a thread at the end"),
        Judged::CutOff => format!("{some} from {from}, open when a signal ended the program"),
        Judged::Runtime => format!("{some} opened by the runtime, not by code of the program"),
    }
}

#[cfg(test)]
#[path = "ended_tests.rs"]
mod tests;
