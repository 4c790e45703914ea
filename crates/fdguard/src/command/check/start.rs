//! The lines that started the leftover processes.

use fdguard_core::children::finding::ChildPile;
use fdguard_core::glob::Glob;
use fdguard_core::proof::process::{Fate, LeftoverProcess};
use fdguard_trace::TraceSession;

use super::family::Family;
use crate::cli::LeaveArgs;

/// A line that has waited for this many children usually waits.
const HABIT: u64 = 8;
/// This many children may be the last ones: one for each thread that starts children.
const LAST: u64 = 2;

/// Processes that outlived the program, each with the line that started it.
pub(super) fn left(
    family: &mut Family,
    leave: &LeaveArgs,
    allowed: &[Glob],
    session: &mut TraceSession,
) -> Vec<LeftoverProcess> {
    let mut processes = family.left(leave.grace, leave.keep_leftovers, allowed);
    for one in &mut processes {
        one.origin = session.child_origin(one.pid);
    }
    if processes.iter().any(|one| one.fate == Fate::Zombie) {
        let lines = session.child_lines();
        let waits = |one: &LeftoverProcess| {
            let mut lines = lines.iter().map(|(line, _)| line);
            lines.any(|line| is_habit(line) && is_of(one, line))
        };
        processes.retain(|one| one.fate != Fate::Zombie || !waits(one));
    }
    processes
}

/// Whether a line waits for its children. The program may end after its last children and before
/// the wait for them, as with threads that Python stops when it shuts down.
fn is_habit(line: &ChildPile) -> bool {
    line.waited >= HABIT && line.started.saturating_sub(line.waited) <= LAST
}

fn is_of(one: &LeftoverProcess, line: &ChildPile) -> bool {
    let culprit = one
        .origin
        .as_ref()
        .and_then(|origin| origin.culprit.as_ref());
    culprit.is_some() && culprit == line.origin.culprit.as_ref()
}
