//! Whether the copy's memory fits: it counts in the program's group.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fdguard_proc::{cgroup, status};

/// What a walk takes at least.
const LEAST: u64 = 24 << 20;

/// How many bytes a walk may take; an error says why it may not begin.
pub(super) fn room(pid: u32) -> Result<u64, String> {
    let resident = resident(pid).unwrap_or(0);
    // Objects of less than 150 bytes are rare, and each takes about 60 here.
    let needed = LEAST + resident * 2 / 5;
    match available(pid, Path::new("/sys/fs/cgroup")) {
        Some(available) if available < needed => Err(format!(
            "its memory limit leaves {} MiB, and a walk may take {} MiB",
            available >> 20,
            needed >> 20
        )),
        Some(available) => Ok(available),
        None => Ok(u64::MAX),
    }
}

/// Bytes that the groups of a process leave; `None` without a limit.
fn available(pid: u32, root: &Path) -> Option<u64> {
    let groups = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let path = cgroup::unified(&groups)?.strip_prefix(b"/")?;
    let mut least = None;
    let mut group = root.join(OsStr::from_bytes(path));
    while group.starts_with(root) {
        let read = |name: &str| {
            let text = std::fs::read_to_string(group.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        if let Some((most, now)) = read("memory.max").zip(read("memory.current")) {
            let free = most.saturating_sub(now);
            least = Some(least.map_or(free, |least: u64| least.min(free)));
        }
        if !group.pop() {
            break;
        }
    }
    least
}

/// Bytes of private memory that are in use.
fn resident(pid: u32) -> Option<u64> {
    let bytes = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    status::number_of(&bytes, b"RssAnon").map(|kilobytes| kilobytes << 10)
}
