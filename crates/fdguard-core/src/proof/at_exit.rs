//! What was open when a process exited: left by mistake, or kept on purpose?
//!
//! A program need not close what the kernel closes for it, and intent is not visible. So each site
//! is judged by what it did with its descriptors: see decisions 023, 038 and 051.

use super::wording::{descriptors, place_of};
use super::{Remains, RemainsVerdict, Rule, RuleKind};
use crate::blame::is_programs;
use crate::count::as_f64;
use crate::lifetimes::PathCourse;
use crate::lint::Severity;
use crate::origin::Origin;
use crate::{Class, Fd, Pid, TcpState, Text};

/// Descriptors that a program left open by mistake.
pub const RULE: Rule = Rule {
    id: "leftover-descriptor",
    kind: RuleKind::Proof,
    severity: Severity::Warning,
    summary: "the program exited and left descriptors open by mistake",
    cwe: Some(775),
    requirement: "R34",
    fix: Some("close it on every path out of the function that owns it, including error paths"),
};

/// A thread must have closed this many before one that it was caught with counts as one that it
/// would have closed.
const THREAD_HABIT: u64 = 3;
/// By how much the oldest may be older than an even pace predicts: of their number, and of what was
/// closed.
const SLACK: f64 = 1.25;
const UNEVEN: f64 = 0.05;
/// A thread that waits for its turn on a busy machine, in seconds.
const STALLED: f64 = 0.25;
/// A process that lived for this many seconds has a history: what did not grow is kept on purpose.
const LONG: f64 = 5.0;
/// In a shorter life, a descriptor kept on purpose cannot be distinguished from a mistake.
const SETTLED: f64 = 1.0;
/// How many descriptors must have been opened together, and for how much of the life they must have
/// been kept, to be a pool.
const POOL: usize = 4;
const KEPT: f64 = 0.4;
const START: f64 = 0.8;

/// The life of a process.
#[derive(Clone, Debug)]
pub struct Life {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// How long it ran, in seconds.
    pub lived: f64,
    /// Whether a signal terminated it.
    pub was_cut_off: bool,
    /// Whether it was forked and still runs its parent's program: a worker.
    pub is_worker: bool,
}

/// A site and what it left open.
#[derive(Clone, Debug)]
pub struct SiteAtExit {
    /// Where; its counts are of this process.
    pub origin: Origin,
    /// The course of what the site opened.
    pub course: PathCourse,
    /// Whether it is one of those that leak.
    pub is_leaking: bool,
    /// What is left.
    pub left: Vec<DescriptorAtExit>,
}

/// One descriptor that was open at exit.
#[derive(Clone, Debug)]
pub struct DescriptorAtExit {
    /// Its number.
    pub fd: Fd,
    /// Its class, where known.
    pub class: Option<Class>,
    /// Its target, where known.
    pub target: Option<Text>,
    /// The call that opened it.
    pub call: String,
    /// For how many seconds it was open.
    pub age: f64,
    /// Whether the first thread opened it.
    pub by_main: bool,
}

/// Judges what one site left open, class by class. `strict` works like valgrind: everything that
/// the program's own code left open counts, however long it ran.
#[must_use]
pub fn judge(life: &Life, place: &SiteAtExit, strict: bool) -> Vec<Remains> {
    let left: Vec<&DescriptorAtExit> = place.left.iter().collect();
    let judged = judge_place(life, place, &left, strict);
    by_class(life, place, &left, judged)
}

fn judge_place(
    life: &Life,
    place: &SiteAtExit,
    left: &[&DescriptorAtExit],
    strict: bool,
) -> RemainsVerdict {
    if place.is_leaking {
        return RemainsVerdict::Grew;
    }
    if !is_programs(&place.origin.stack) {
        return RemainsVerdict::Runtime;
    }
    if life.was_cut_off {
        return RemainsVerdict::CutOff;
    }
    if place.course == PathCourse::Rolls {
        return RemainsVerdict::Rolling;
    }
    if !strict && is_held(life, place, left) {
        return RemainsVerdict::Held;
    }
    let (closed, count) = (place.origin.closed, left.len() as u64);
    let by_thread = left.iter().all(|one| !one.by_main);
    let is_fresh = || is_youngest(life, place, left) || oldest(left) <= STALLED;
    if closed == 0 {
        RemainsVerdict::Left
    } else if by_thread && closed >= THREAD_HABIT.max(count) && is_fresh() {
        RemainsVerdict::InFlight
    } else {
        RemainsVerdict::Strayed
    }
}

/// Whether they were kept on purpose: their number did not grow in a long life, or they were opened
/// together and kept for much of a shorter one.
fn is_held(life: &Life, place: &SiteAtExit, left: &[&DescriptorAtExit]) -> bool {
    let youngest = left.iter().map(|one| one.age).fold(f64::INFINITY, f64::min);
    let is_pool = left.len() >= POOL
        && matches!(place.course, PathCourse::Stopped | PathCourse::Burst)
        && youngest >= KEPT * life.lived;
    let is_listening = |one: &&DescriptorAtExit| one.class == Some(Class::Tcp(TcpState::Listen));
    // A worker keeps what it opens at its start and does not close it at exit.
    let is_start = life.is_worker && youngest >= START * life.lived;
    let is_kept = is_pool || is_start || left.iter().all(is_listening);
    life.lived >= LONG || (life.lived >= SETTLED && is_kept)
}

/// Whether these are the site's latest: at an even pace, the oldest was opened that many opens ago.
fn is_youngest(life: &Life, place: &SiteAtExit, left: &[&DescriptorAtExit]) -> bool {
    let pace = as_f64(place.origin.opened) / life.lived.max(f64::EPSILON);
    let expected = SLACK * as_f64(left.len() as u64 + 1) + UNEVEN * as_f64(place.origin.closed);
    pace * oldest(left) <= expected
}

fn oldest(left: &[&DescriptorAtExit]) -> f64 {
    left.iter().map(|one| one.age).fold(0.0, f64::max)
}

fn by_class(
    life: &Life,
    place: &SiteAtExit,
    left: &[&DescriptorAtExit],
    judged: RemainsVerdict,
) -> Vec<Remains> {
    let mut classes: Vec<Option<&Class>> = left.iter().map(|one| one.class.as_ref()).collect();
    classes.sort_unstable();
    classes.dedup();
    let of_class = |class: Option<&Class>| -> Vec<&DescriptorAtExit> {
        let of = left.iter().filter(|one| one.class.as_ref() == class);
        of.copied().collect()
    };
    let groups = classes.into_iter().map(|class| (class, of_class(class)));
    groups
        .map(|(class, group)| {
            let is_apart = judged == RemainsVerdict::Grew && is_lone(&group, left);
            let judged = if is_apart {
                RemainsVerdict::Held
            } else {
                judged
            };
            Remains {
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
            }
        })
        .collect()
}

/// Whether this is the only one of its class, opened before most of what its site leaked: a runtime
/// opens `/dev/null` once with the call that later opens the program's files.
fn is_lone(group: &[&DescriptorAtExit], left: &[&DescriptorAtExit]) -> bool {
    let [one] = group else { return false };
    let younger = left.iter().filter(|other| other.age < one.age).count();
    left.len() >= POOL && younger * 2 > left.len()
}

/// The target that all of them share.
fn common(group: &[&DescriptorAtExit]) -> Option<Text> {
    let first = group.first()?.target.as_ref()?;
    let is_same = group.iter().all(|one| one.target.as_ref() == Some(first));
    is_same.then(|| first.clone())
}

fn why(judged: RemainsVerdict, place: &SiteAtExit, count: u64) -> String {
    let from = place_of(Some(&place.origin));
    let (opened, closed) = (place.origin.opened, place.origin.closed);
    let some = descriptors(count);
    match judged {
        RemainsVerdict::Grew | RemainsVerdict::PerCycle => {
            format!("{some} from {from}, of a kind whose number kept growing")
        }
        RemainsVerdict::Left => format!(
            "{some} from {from} still open when the program exited; this line opened {opened}, none was closed"
        ),
        RemainsVerdict::Strayed => format!(
            "{some} from {from} still open when the program exited; this line opened {opened}, {closed} were closed"
        ),
        RemainsVerdict::Allowed => format!("{some} from {from}, allowed"),
        RemainsVerdict::Held => {
            format!("{some} from {from}, no more than long before the exit: kept open on purpose")
        }
        RemainsVerdict::Rolling => format!(
            "{some} from {from}, the last of {opened}: {closed} older ones were closed one by one"
        ),
        RemainsVerdict::InFlight => format!("{some} from {from}, in use by a thread at exit"),
        RemainsVerdict::CutOff => {
            format!("{some} from {from}, open when a signal ended the program")
        }
        RemainsVerdict::Runtime => {
            format!("{some} opened by the runtime, not by the program's code")
        }
    }
}

#[cfg(test)]
#[path = "at_exit_tests.rs"]
mod tests;
