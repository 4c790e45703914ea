//! The lines that started the processes that are left.

use fdguard_core::proof::process::Leftover;
use fdguard_trace::{Symbols, Traced};

/// Gives each process that is left the line that started it.
pub(super) fn name_lines(mut processes: Vec<Leftover>, traced: &Traced) -> Vec<Leftover> {
    let mut symbols = Symbols::new();
    for one in &mut processes {
        one.origin = traced.child_origin(one.pid, &mut symbols);
    }
    processes
}
