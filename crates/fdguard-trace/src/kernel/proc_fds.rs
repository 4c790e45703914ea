//! The numbers that are open in a process, by `/proc`.

use std::collections::BTreeSet;
use std::io;

/// Lists them. The process may change meanwhile.
pub(super) fn open_fds(pid: u32) -> io::Result<BTreeSet<u32>> {
    let mut open = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = entry?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(open)
}
