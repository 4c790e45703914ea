//! The lines that started the processes that are left.

use fdguard_core::glob::Glob;
use fdguard_core::proof::process::Leftover;
use fdguard_trace::{Symbols, Traced};

use super::family::Family;
use crate::cli::LeaveArgs;

/// Who is left of a program that has ended, each with the line that started it.
pub(super) fn left(
    family: &mut Family,
    leave: &LeaveArgs,
    allowed: &[Glob],
    traced: &Traced,
) -> Vec<Leftover> {
    let mut symbols = Symbols::new();
    let mut processes = family.left(leave.grace, leave.keep_leftovers, allowed);
    for one in &mut processes {
        one.origin = traced.child_origin(one.pid, &mut symbols);
    }
    processes
}
