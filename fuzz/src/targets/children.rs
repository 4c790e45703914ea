//! `/proc/PID/task/TID/children`: read in pieces it gives the same pids.

use fdguard_proc::children::{ChildPids, pids};

pub(crate) fn run(bytes: &[u8]) {
    let mut found = Vec::new();
    let mut list = ChildPids::default();
    for piece in bytes.chunks(7) {
        list.take(piece, &mut |pid| found.push(pid));
    }
    list.finish(&mut |pid| found.push(pid));
    assert_eq!(found, pids(bytes));
}
