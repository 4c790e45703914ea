//! The lines that started the leftover processes.

use fdguard_core::glob::Glob;
use fdguard_core::proof::process::{Fate, LeftoverProcess};
use fdguard_diagnose::check::forgive_last_zombies;
use fdguard_trace::{Symbols, TracedCommand};

use super::family::Family;
use crate::cli::LeaveArgs;

/// Processes that outlived the program, each with the line that started it.
pub(super) fn left(
    family: &mut Family,
    leave: &LeaveArgs,
    allowed: &[Glob],
    traced: &TracedCommand,
) -> Vec<LeftoverProcess> {
    let mut symbols = Symbols::new();
    let mut processes = family.left(leave.grace, leave.keep_leftovers, allowed);
    for one in &mut processes {
        one.origin = traced.child_origin(one.pid, &mut symbols);
    }
    if processes.iter().any(|one| one.fate == Fate::Zombie) {
        let lines = traced.child_lines(&mut symbols);
        forgive_last_zombies(&mut processes, &lines);
    }
    processes
}
