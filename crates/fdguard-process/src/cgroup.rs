//! A cgroup (version 2) for one tree, where fdguard may create one below its own.
//!
//! The keeper creates and removes it, and stays outside. The program starts inside it
//! (`CLONE_INTO_CGROUP`, Linux 5.7), so no descendant can ever be elsewhere; `cgroup.kill` (5.14)
//! ends all of it in one step.

mod aside;

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use fdguard_proc::cgroup::unified;
use fdguard_proc::mountinfo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, getxattr, mkdirat, openat, unlinkat};
use rustix::io::{Errno, pread, write};
use rustix::time::{ClockId, clock_gettime};

/// How often and how long to wait for a leaf to become empty before it is removed.
const TRIES: usize = 20;
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};
/// The prefix of the names of leaves; the owner's pid follows.
const PREFIX: &str = "fdguard-";

/// An existing leaf. Its methods may be called by a keeper: they neither allocate nor lock.
#[derive(Debug)]
pub(crate) struct Leaf<'s> {
    path: &'s CStr,
    dir: OwnedFd,
    events: OwnedFd,
    kill: OwnedFd,
}

impl<'s> Leaf<'s> {
    /// Creates it; `None` if not permitted, or if the kernel cannot kill it.
    pub(crate) fn make(path: &'s CStr) -> Option<Self> {
        mkdirat(CWD, path, Mode::from_raw_mode(0o755)).ok()?;
        let leaf = Self::open(path);
        if leaf.is_none() {
            let _left = unlinkat(CWD, path, AtFlags::REMOVEDIR);
        }
        leaf
    }

    /// Opens an existing one.
    pub(crate) fn open(path: &'s CStr) -> Option<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = openat(CWD, path, flags, Mode::empty()).ok()?;
        let file =
            |name: &CStr, flags| openat(&dir, name, flags | OFlags::CLOEXEC, Mode::empty()).ok();
        let events = file(c"cgroup.events", OFlags::RDONLY)?;
        let kill = file(c"cgroup.kill", OFlags::WRONLY)?;
        Some(Self {
            path,
            dir,
            events,
            kill,
        })
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Signals an exceptional condition when the leaf becomes empty.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.dir.as_fd(), self.events.as_fd(), self.kill.as_fd()]
    }

    /// Whether a process is in it. A removed one is empty.
    pub(crate) fn is_populated(&self) -> bool {
        let mut bytes = [0; 256];
        let length = pread(&self.events, &mut bytes, 0).unwrap_or(0);
        let text = bytes.get(..length).unwrap_or_default();
        text.split(|byte| *byte == b'\n')
            .any(|line| line == b"populated 1")
    }

    /// Writes to one of its files, whose controller may be missing.
    pub(crate) fn set(&self, name: &CStr, value: &[u8]) -> bool {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&self.dir, name, flags, Mode::empty());
        file.is_ok_and(|file| write(&file, value) == Ok(value.len()))
    }

    /// How many of its processes the kernel killed because its memory was used up; `None` if memory
    /// is not accounted.
    pub(crate) fn memory_kills(&self) -> Option<u32> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = openat(&self.dir, c"memory.events", flags, Mode::empty()).ok()?;
        let mut bytes = [0; 512];
        let length = pread(&file, &mut bytes, 0).ok()?;
        kills(bytes.get(..length)?)
    }

    /// Kills everything in it, including processes that are being created.
    pub(crate) fn kill(&self) {
        // If this fails, the keeper's own sweep kills them.
        let _refused = write(&self.kill, b"1");
    }

    /// Removes it. One that does not become empty soon stays.
    pub(crate) fn remove(&self) {
        for _ in 0..TRIES {
            if unlinkat(CWD, self.path, AtFlags::REMOVEDIR) != Err(Errno::BUSY) {
                return;
            }
            // A reaped process may still be leaving the cgroup.
            let mut fds = [PollFd::new(&self.events, PollFlags::PRI)];
            if self.is_populated() {
                let _happened = poll(&mut fds, Some(&PAUSE));
            }
        }
    }
}

/// The path of a leaf for one more tree; `None` if fdguard's own cgroup is unknown or must not be
/// divided. With `limits`, leaves get the memory and process controllers where that is allowed. The
/// kernel refuses this to a cgroup with processes of its own, except the root: if all of them are
/// fdguard's, they move aside into a leaf.
pub(crate) fn next_path(limits: bool) -> Option<CString> {
    let own = own_dir(
        &fs::read("/proc/self/mountinfo").ok()?,
        &fs::read("/proc/self/cgroup").ok()?,
    )?;
    let own = aside::home(own);
    if is_managed(&own) && !is_delegated(&own) {
        return None;
    }
    if limits {
        static GIVEN: Once = Once::new();
        GIVEN.call_once(|| give_controllers(&own));
    }
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| sweep(&own));
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = clock_gettime(ClockId::Boottime);
    let pid = std::process::id();
    let leaf = own.join(format!("{PREFIX}{pid}-{}-{count}", time.tv_sec));
    CString::new(leaf.as_os_str().as_bytes()).ok()
}

fn give_controllers(own: &Path) {
    let there = fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    let wanted = there.split_ascii_whitespace();
    let wanted: Vec<String> = wanted
        .filter(|name| ["memory", "pids"].contains(name))
        .map(|name| format!("+{name}"))
        .collect();
    // Only the root may have both processes and leaves with controllers. Elsewhere only the process
    // controller would be enabled, and no process could be put into a leaf from then on.
    let is_root = !own.join("cgroup.type").exists();
    if !wanted.is_empty() && (is_root || aside::step(own)) {
        let _refused = fs::write(own.join("cgroup.subtree_control"), wanted.join(" "));
    }
}

/// The kill count in `memory.events`.
fn kills(events: &[u8]) -> Option<u32> {
    let mut lines = events.split(|byte| *byte == b'\n');
    let count = lines.find_map(|line| line.strip_prefix(b"oom_kill "))?;
    std::str::from_utf8(count).ok()?.parse().ok()
}

/// Removes leaves of owners that are gone and whose keepers were also killed. Only an empty one can
/// be removed.
fn sweep(own: &Path) {
    for entry in fs::read_dir(own).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(owner);
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _stays = fs::remove_dir(entry.path());
        }
    }
}

/// The owner of a leaf with this name: a leaf of a tree, or the owner's own.
fn owner(name: &str) -> Option<u32> {
    let name = name.strip_prefix(PREFIX)?;
    let number = name.strip_prefix(aside::NAME).unwrap_or(name);
    number.split('-').next()?.parse().ok()
}

/// The directory of fdguard's own cgroup, from the mounts and `/proc/self/cgroup`.
fn own_dir(mounts: &[u8], cgroups: &[u8]) -> Option<PathBuf> {
    let own = Path::new(OsStr::from_bytes(unified(cgroups)?));
    let mount = mountinfo::mounts(mounts).find(|mount| mount.kind == b"cgroup2")?;
    let path = |escaped| PathBuf::from(OsString::from_vec(mountinfo::unescaped(escaped)));
    let below = own.strip_prefix(path(mount.root)).ok()?;
    let is_plain = !own.components().any(|part| part == Component::ParentDir);
    is_plain.then(|| path(mount.place).join(below))
}

/// Whether systemd created it: then only systemd may divide it, unless it is delegated.
fn is_managed(own: &Path) -> bool {
    let units = ["service", "scope", "slice"];
    own.extension()
        .is_some_and(|kind| units.iter().any(|unit| kind == *unit))
}

fn is_delegated(own: &Path) -> bool {
    ["user.delegate", "trusted.delegate"].iter().any(|name| {
        let mut value = [0_u8; 8];
        getxattr(own, *name, &mut value[..]).is_ok_and(|length| value.get(..length) == Some(b"1"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &[u8] =
        b"24 1 0:22 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
        25 1 0:23 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn our_dir_is_below_the_mount() {
        let dir = own_dir(HYBRID, b"4:memory:/x\n0::/\n").unwrap();
        assert_eq!(dir, Path::new("/sys/fs/cgroup/unified"));
        let dir = own_dir(HYBRID, b"0::/system.slice/a.service\n").unwrap();
        assert_eq!(
            dir,
            Path::new("/sys/fs/cgroup/unified/system.slice/a.service")
        );
    }

    #[test]
    fn a_part_of_the_hierarchy_may_be_mounted() {
        let mounts = b"30 1 0:23 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        let dir = own_dir(mounts, b"0::/docker/abc/x\n").unwrap();
        assert_eq!(dir, Path::new("/sys/fs/cgroup/x"));
        assert_eq!(own_dir(mounts, b"0::/elsewhere\n"), None);
        assert_eq!(own_dir(mounts, b"0::/../other\n"), None);
    }

    #[test]
    fn without_version_2_there_is_none() {
        assert_eq!(
            own_dir(b"24 1 0:22 / /c rw - cgroup cgroup rw\n", b"0::/\n"),
            None
        );
        assert_eq!(own_dir(HYBRID, b"4:memory:/x\n"), None);
    }

    #[test]
    fn kills_for_memory_are_counted_where_somebody_counts() {
        let events = b"low 0\nhigh 0\nmax 55\noom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(kills(events), Some(2));
        assert_eq!(kills(b"low 0\n"), None);
        assert_eq!(kills(b"oom_kill x\n"), None);
    }

    #[test]
    fn a_leaf_names_its_owner() {
        assert_eq!(owner("fdguard-77-123-0"), Some(77));
        assert_eq!(owner("fdguard-self-77"), Some(77));
        assert_eq!(owner("fdguard-x"), None);
        assert_eq!(owner("system.slice"), None);
    }

    #[test]
    fn units_are_divided_by_systemd_alone() {
        assert!(is_managed(Path::new("/sys/fs/cgroup/a.service")));
        assert!(!is_managed(Path::new("/sys/fs/cgroup/a.service/mine")));
        assert!(!is_managed(Path::new("/sys/fs/cgroup")));
    }
}
