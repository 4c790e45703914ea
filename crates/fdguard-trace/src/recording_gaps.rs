//! Gaps of recordings that do not see everything, or ended too early.

use fdguard_core::Gap;
use fdguard_core::units::counted;

use crate::source::TraceSource;
use crate::table::{ProcessTable, ProcessTables};

/// What a source and its recordings could not see.
pub(crate) fn source_gaps(source: &dyn TraceSource, tables: &ProcessTables) -> Vec<Gap> {
    let left_at = source.left_at();
    let mut found = source.gaps();
    found.extend(tables.iter().flat_map(|table| gaps(table, left_at)));
    let is_ahead = |table: &&ProcessTable| table.began > tables.read_at;
    found.extend(tables.iter().filter(is_ahead).map(other_clock));
    found
}

/// Its recording begins in the future.
fn other_clock(table: &ProcessTable) -> Gap {
    Gap::new(
        format!(
            "how long descriptors of process {} ({}) have been open, and whether they leak over time",
            table.pid, table.comm
        ),
        "it has clocks of its own, ahead of fdguard's (a time namespace): their difference is not known",
        "run fdguard inside that namespace, or use fdguard watch, which needs no clock of the process",
    )
}

/// The gaps of one process. `left_at` says when fdguard took the library out of it.
fn gaps(table: &ProcessTable, left_at: Option<u64>) -> Vec<Gap> {
    let name = format!("process {} ({})", table.pid, table.comm);
    let unhooked = (table.unhooked > 0).then(|| unhooked(&name, table.unhooked));
    let is_early = |ended: &u64| left_at.is_none_or(|left| *ended < left);
    let ended = table.ended.filter(is_early);
    let ended = ended.map(|at| ended_early(&name, at.saturating_sub(table.began)));
    unhooked.into_iter().chain(ended).collect()
}

/// References that hold another address than the C library's function.
fn unhooked(name: &str, count: u64) -> Gap {
    let references = counted(count, "reference");
    Gap::new(
        format!(
            "descriptors that {name} opens or closes through {references} to C library functions"
        ),
        "they hold addresses that fdguard does not know, because another tool changed them, or are in memory that cannot be written; they were left as they are",
        "start the program with fdguard trace -- COMMAND, so that the library is loaded before that tool",
    )
}

fn ended_early(name: &str, after: u64) -> Gap {
    let seconds = after as f64 / 1e9;
    Gap::new(
        format!(
            "what {name} opened and closed later than {seconds:.1} s after its recording began"
        ),
        "the recording ended before fdguard detached: another fdguard ended it, or the directory of its records was removed",
        "run fdguard trace PID again, and exclude fdguard-trace-* from cleaning of /dev/shm and /tmp",
    )
}
