//! The lines that started the leftover processes.

use fdguard_core::glob::Glob;
use fdguard_core::proof::process::{Fate, LeftoverProcess};
use fdguard_diagnose::check::forgive_last_zombies;
use fdguard_trace::TraceSession;

use super::family::Family;
use crate::cli::LeaveArgs;

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
        forgive_last_zombies(&mut processes, &lines);
    }
    processes
}
