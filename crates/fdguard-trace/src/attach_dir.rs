//! The directory in which an attached process records: inside the process's own root, owned by its
//! user, and private.
//!
//! fdguard reads it through a descriptor, so it works across mount namespaces and after the process
//! has ended.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use fdguard_proc::status::ProcStatus;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;

use crate::listener::monotonic;
use crate::stale_dirs;

/// Where it may be, best first: in memory, then where every program may write.
pub(crate) const PARENTS: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// The directory; it is removed at the end.
#[derive(Debug)]
pub(crate) struct AttachDir {
    parent: OwnedFd,
    name: String,
    /// As the process sees it.
    seen: PathBuf,
    /// Open for as long as the trace runs, which marks it as running.
    dir: File,
}

/// Who a process is to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileOwner {
    uid: u32,
    gid: u32,
}

impl FileOwner {
    /// The owner of the files that a process creates.
    pub(crate) fn of(status: &ProcStatus<'_>) -> Option<Self> {
        let (uid, gid) = status.file_uid.zip(status.file_gid)?;
        Some(Self { uid, gid })
    }

    fn current() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

impl AttachDir {
    /// Creates one for a process below this directory of its root.
    pub(crate) fn create(pid: u32, parent: &str, owner: FileOwner) -> io::Result<Self> {
        let root = rustix::fs::open(format!("/proc/{pid}/root"), IN, Mode::empty())?;
        // The links in a foreign root must not lead out of it.
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let parent_dir = match rustix::fs::openat2(&root, parent, IN, Mode::empty(), inside) {
            // Before Linux 5.6; without more rights than the process has, links do no harm.
            Err(Errno::NOSYS) if owner == FileOwner::current() => {
                rustix::fs::openat(&root, parent.trim_start_matches('/'), IN, Mode::empty())
            }
            result => result,
        }?;
        let name = format!("{}{pid}-{:x}", stale_dirs::PREFIX, monotonic());
        rustix::fs::mkdirat(&parent_dir, &name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&parent_dir, &name, flags, Mode::empty())?;
        let one = Self {
            parent: parent_dir,
            seen: PathBuf::from(parent).join(&name),
            name,
            dir: dir.into(),
        };
        // From here on it is removed if anything fails.
        stale_dirs::claim_open(&one.dir)?;
        if owner != FileOwner::current() {
            let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
            rustix::fs::fchown(&one.dir, Some(uid), Some(gid))?;
        }
        Ok(one)
    }

    /// Its name in the process.
    pub(crate) fn seen(&self) -> &std::path::Path {
        &self.seen
    }

    /// Its name for fdguard.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd()))
    }
}

/// To open a directory only as a place.
const IN: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Drop for AttachDir {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(self.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            // A process that still has the file mapped keeps what it has.
            let _ = rustix::fs::unlinkat(self.dir.as_fd(), entry.file_name(), AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{AttachDir, FileOwner, ProcStatus};

    #[test]
    fn files_belong_to_the_file_system_user() {
        let own = std::fs::read("/proc/self/status").unwrap();
        let owner = FileOwner::of(&ProcStatus::parse(&own));
        assert_eq!(owner, Some(FileOwner::current()));
        assert_eq!(FileOwner::of(&ProcStatus::default()), None);
    }

    #[test]
    fn it_is_private_visible_to_the_process_and_removed_at_the_end() {
        let owner = FileOwner::current();
        let dir = AttachDir::create(std::process::id(), "/tmp", owner).unwrap();
        let seen = dir.seen().to_owned();
        assert_eq!(seen.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::write(seen.join("1-2.fdguard"), "x").unwrap();
        assert_eq!(std::fs::read(dir.path().join("1-2.fdguard")).unwrap(), b"x");
        assert!(crate::stale_dirs::is_claimed(&seen));
        drop(dir);
        assert!(!seen.exists());
    }
}
