//! Whether the copy's memory fits: it counts in the program's group.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use fdguard_core::count::as_f64;
use fdguard_core::units;
use fdguard_proc::{cgroup, meminfo, status};

/// What a walk takes at least.
const LEAST: u64 = 24 << 20;

/// How many bytes a walk may take; an error says why it may not begin.
pub(super) fn room(pid: u32) -> Result<u64, String> {
    let resident = resident(pid).unwrap_or(0);
    // Objects of less than 150 bytes are rare, and each takes about 60 here.
    let needed = LEAST + resident * 2 / 5;
    enough(available(pid, Path::new("/sys/fs/cgroup")), needed)
}

/// How many bytes the host has left; `None` if it does not say.
pub(super) fn host_room() -> Option<u64> {
    meminfo::available(&std::fs::read("/proc/meminfo").ok()?)
}

fn enough(available: Option<u64>, needed: u64) -> Result<u64, String> {
    match available {
        Some(available) if available < needed => Err(format!(
            "its memory limit leaves {}, and a walk may take {}",
            units::size(as_f64(available)),
            units::size(as_f64(needed))
        )),
        Some(available) => Ok(available),
        None => Ok(u64::MAX),
    }
}

/// Bytes that the groups of a process leave; `None` without a limit.
fn available(pid: u32, root: &Path) -> Option<u64> {
    let groups = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let path = cgroup::unified(&groups)?.strip_prefix(b"/")?;
    least_free(root, Path::new(OsStr::from_bytes(path)))
}

/// Bytes that a group and those above it leave.
fn least_free(root: &Path, group: &Path) -> Option<u64> {
    let mut least = None;
    let mut group = root.join(group);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LEAST, enough, least_free};

    #[test]
    fn the_tightest_group_above_a_process_decides() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        std::fs::create_dir_all(&group).unwrap();
        let write = |path: &Path, most: &str, now: &str| {
            std::fs::write(path.join("memory.max"), most).unwrap();
            std::fs::write(path.join("memory.current"), now).unwrap();
        };
        let free = || least_free(root.path(), Path::new("a/b"));
        assert_eq!(free(), None);
        write(&group, "max\n", "5\n");
        assert_eq!(free(), None);
        write(&group, "9000\n", "5000\n");
        assert_eq!(free(), Some(4000));
        write(&root.path().join("a"), "9000\n", "8000\n");
        assert_eq!(free(), Some(1000));
        // Over its limit.
        write(&root.path().join("a"), "9000\n", "9001\n");
        assert_eq!(free(), Some(0));
    }

    #[test]
    fn a_limit_that_leaves_too_little_refuses_the_walk() {
        assert_eq!(enough(None, LEAST), Ok(u64::MAX));
        assert_eq!(enough(Some(LEAST), LEAST), Ok(LEAST));
        let refusal = enough(Some(5 << 20), LEAST).unwrap_err();
        assert_eq!(
            refusal,
            "its memory limit leaves 5 MiB, and a walk may take 24 MiB"
        );
    }
}
