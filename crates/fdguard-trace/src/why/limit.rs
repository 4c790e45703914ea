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
    let group = available(pid, Path::new("/sys/fs/cgroup"));
    enough(group, host_room(), needed)
}

/// If memory is short after all, the kernel should end a copy, not the program. What cannot be set
/// stays as it is: the copy has what the program has.
pub(super) fn prefer_as_victim(copy: u32) {
    drop(std::fs::write(
        format!("/proc/{copy}/oom_score_adj"),
        "1000",
    ));
}

/// How many bytes the host has left; `None` if it does not say.
fn host_room() -> Option<u64> {
    meminfo::available(&std::fs::read("/proc/meminfo").ok()?)
}

fn enough(group: Option<u64>, host: Option<u64>, needed: u64) -> Result<u64, String> {
    let available = group.unwrap_or(u64::MAX).min(host.unwrap_or(u64::MAX));
    if available >= needed {
        return Ok(available);
    }
    let whose = match group {
        Some(group) if group == available => "its memory limit leaves",
        _ => "the host has left",
    };
    Err(format!(
        "{whose} {}, and a walk may take {}",
        units::size(as_f64(available)),
        units::size(as_f64(needed))
    ))
}

/// The names of a memory controller's files, and where it is mounted.
struct Controller {
    dir: &'static str,
    most: &'static str,
    now: &'static str,
    /// What of `memory.stat` is a cache that the kernel gives up for others.
    cache: &'static str,
}

const UNIFIED: Controller = Controller {
    dir: "",
    most: "memory.max",
    now: "memory.current",
    cache: "inactive_file",
};
const LEGACY: Controller = Controller {
    dir: "memory",
    most: "memory.limit_in_bytes",
    now: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

/// Bytes that the groups of a process leave; `None` without a limit.
fn available(pid: u32, root: &Path) -> Option<u64> {
    let groups = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let unified = cgroup::unified(&groups).map(|path| (UNIFIED, path));
    let legacy = cgroup::of_controller(&groups, b"memory").map(|path| (LEGACY, path));
    let both = [unified, legacy].into_iter().flatten();
    let free = both.filter_map(|(controller, path)| {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let root = root.join(controller.dir);
        least_free(&controller, &root, Path::new(OsStr::from_bytes(path)))
    });
    free.min()
}

/// Bytes that a group and those above it leave.
fn least_free(of: &Controller, root: &Path, group: &Path) -> Option<u64> {
    let mut least = None;
    let mut group = root.join(group);
    // In a container the path may be that of the host, and the root the container's own group.
    if !group.exists() {
        group = root.to_owned();
    }
    while group.starts_with(root) {
        let text = |name: &str| std::fs::read_to_string(group.join(name)).ok();
        let read = |name: &str| text(name)?.trim().parse::<u64>().ok();
        if let Some((most, now)) = read(of.most).zip(read(of.now)) {
            let stat = text("memory.stat").unwrap_or_default();
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            let cache = lines.find(|(name, _)| *name == of.cache);
            let cache = cache.and_then(|(_, bytes)| bytes.parse().ok());
            let free = most.saturating_sub(now.saturating_sub(cache.unwrap_or(0)));
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

    use super::{LEAST, LEGACY, UNIFIED, enough, least_free};

    #[test]
    fn the_tightest_group_above_a_process_decides() {
        for of in [&UNIFIED, &LEGACY] {
            let root = tempfile::tempdir().unwrap();
            let group = root.path().join("a/b");
            std::fs::create_dir_all(&group).unwrap();
            let write = |path: &Path, most: &str, now: &str| {
                std::fs::write(path.join(of.most), most).unwrap();
                std::fs::write(path.join(of.now), now).unwrap();
            };
            let free = || least_free(of, root.path(), Path::new("a/b"));
            assert_eq!(free(), None);
            write(&group, "max\n", "5\n");
            assert_eq!(free(), None);
            write(&group, "9000\n", "5000\n");
            assert_eq!(free(), Some(4000));
            // What the kernel would give up is free.
            let stat = format!("anon 7\n{} 500\n", of.cache);
            std::fs::write(group.join("memory.stat"), stat).unwrap();
            assert_eq!(free(), Some(4500));
            write(&root.path().join("a"), "9000\n", "8000\n");
            assert_eq!(free(), Some(1000));
            // Over its limit.
            write(&root.path().join("a"), "9000\n", "9001\n");
            assert_eq!(free(), Some(0));
            // A path that is not seen from here.
            write(root.path(), "50\n", "8\n");
            assert_eq!(least_free(of, root.path(), Path::new("x/y")), Some(42));
        }
    }

    #[test]
    fn a_limit_that_leaves_too_little_refuses_the_walk() {
        assert_eq!(enough(None, None, LEAST), Ok(u64::MAX));
        assert_eq!(enough(Some(LEAST), None, LEAST), Ok(LEAST));
        assert_eq!(enough(Some(LEAST + 1), Some(LEAST), LEAST), Ok(LEAST));
        let refused = |group, host| enough(group, host, LEAST).unwrap_err();
        assert_eq!(
            refused(Some(5 << 20), Some(6 << 20)),
            "its memory limit leaves 5 MiB, and a walk may take 24 MiB"
        );
        assert_eq!(
            refused(Some(5 << 30), Some(6 << 20)),
            "the host has left 6 MiB, and a walk may take 24 MiB"
        );
    }
}
