//! What was open when a process ended: left by mistake, or held on purpose?
//!
//! A program need not close what the kernel closes for it, and nobody can read intentions. So each
//! place in the code is judged by what it did with its descriptors: see decisions 023 and 038.

use super::births::{self, Closed, Course};
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

/// So many must have been closed by a thread before one that it was caught with is one that it would have closed.
const THREAD_HABIT: u64 = 3;
/// By how much the oldest may be older than an even pace would have it: of their number, and of what was closed.
const SLACK: f64 = 1.25;
const UNEVEN: f64 = 0.05;
/// A thread that waits for its turn on a busy machine, in seconds.
const STALLED: f64 = 0.25;
/// Whoever lived for so many seconds has a history, however rarely a busy machine let somebody look.
const LONG: f64 = 12.0;

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
    /// What became of those that are not left.
    pub closed: Closed,
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
    // that fills. The times of the line itself are exact.
    match course(life, place, &all) {
        Course::Rolls if !grown.is_empty() => return by_class(life, place, &all, Judged::Rolling),
        Course::Stopped if !grown.is_empty() => return by_class(life, place, &all, Judged::Held),
        Course::Arrives if has_history(life) && !life.was_cut_off => {
            return by_class(life, place, &all, Judged::Grew);
        }
        _ => {}
    }
    let judged = judge_rest(life, place, &rest, strict);
    let mut remains = by_class(life, place, &grown, Judged::Grew);
    remains.extend(by_class(life, place, &rest, judged));
    remains
}

fn has_history(life: &Life) -> bool {
    life.has_history || life.lived >= LONG
}

fn course(life: &Life, place: &Place, left: &[&Left]) -> Course {
    let mut births: Vec<f64> = left.iter().map(|one| life.lived - one.age).collect();
    births.sort_by(f64::total_cmp);
    births::course(life.lived, &births, &place.closed)
}

fn judge_rest(life: &Life, place: &Place, rest: &[&Left], strict: bool) -> Judged {
    if !own::is_programs(&place.origin.stack) {
        return Judged::Runtime;
    }
    if life.was_cut_off {
        return Judged::CutOff;
    }
    if has_history(life) && !strict {
        return Judged::Held;
    }
    let (closed, count) = (place.origin.closed, rest.len() as u64);
    let by_thread = rest.iter().all(|one| !one.by_main);
    let is_fresh = || is_youngest(life, place, rest) || oldest(rest) <= STALLED;
    if closed == 0 {
        Judged::Left
    } else if course(life, place, rest) == Course::Rolls {
        Judged::Rolling
    } else if by_thread && closed >= THREAD_HABIT.max(count) && is_fresh() {
        Judged::InFlight
    } else {
        Judged::Strayed
    }
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
