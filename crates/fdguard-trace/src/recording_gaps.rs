//! Gaps of recordings that do not see everything, or ended too early.

use std::collections::BTreeMap;

use fdguard_core::units::{self, counted};
use fdguard_core::{Gap, TraceKey};

use crate::lifetimes::TracedProcess;
use crate::source::TraceSource;
use crate::table::{ProcessTable, ProcessTables};

/// What a source and its recordings could not see. The records of processes that ended may be
/// removed by now: `processes` has them, too.
pub(crate) fn source_gaps(
    source: &dyn TraceSource,
    tables: &ProcessTables,
    processes: &[TracedProcess],
) -> Vec<Gap> {
    let left_at = source.left_at();
    let mut found = source.gaps();
    found.extend(tables.iter().flat_map(|table| gaps(table, left_at)));
    let recorded = tables.iter().map(|one| (one.key(), &*one.comm));
    let traced = processes.iter().map(|one| (one.key(), &*one.comm));
    let is_ahead = |(key, _): &(TraceKey, &str)| key.began > tables.read_at;
    let ahead: BTreeMap<_, _> = recorded.chain(traced).filter(is_ahead).collect();
    found.extend(ahead.into_iter().map(|(key, comm)| other_clock(key, comm)));
    found
}

/// Its recording begins in the future.
fn other_clock(key: TraceKey, comm: &str) -> Gap {
    Gap::new(
        format!(
            "how long descriptors of process {} ({comm}) have been open, and whether they leak over time",
            key.pid
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
    let apart = (table.apart > 0).then(|| apart(&name, table.apart));
    [unhooked, ended, apart].into_iter().flatten().collect()
}

/// Threads whose descriptors are not the process's.
fn apart(name: &str, count: u64) -> Gap {
    Gap::new(
        format!(
            "what {} of {name} opened and closed",
            counted(count, "thread")
        ),
        "they left the process's descriptor table for one of their own (unshare, or close_range with CLOSE_RANGE_UNSHARE)",
        "no action needed: the table of the process itself is complete",
    )
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
            "what {name} opened and closed later than {} after its recording began",
            units::moment(seconds)
        ),
        "the recording ended before fdguard detached: another fdguard ended it, or the directory of its records was removed",
        "run fdguard trace PID again, and exclude fdguard-trace-* from cleaning of /dev/shm and /tmp",
    )
}
