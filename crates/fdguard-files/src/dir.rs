//! A directory that is held open: changes to its path do not affect which files are accessed.
//!
//! The kernel opens everything below it (`openat2` with `RESOLVE_BENEATH`, without links). If a
//! directory is replaced by a link between two steps, the open fails. Checking names before using
//! them would be a race.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// A directory. A clone is another handle to the same descriptor.
#[derive(Clone, Debug)]
pub struct Dir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
    id: (u64, u64),
}

/// The entry at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Device and inode.
    pub(crate) id: (u64, u64),
    /// File type; links are not followed.
    pub(crate) kind: FileType,
    /// Bytes.
    pub(crate) size: u64,
    /// Last write, in seconds.
    pub(crate) written: i64,
}

impl Dir {
    /// Opens it. Links in the path are resolved first; a link that is put into it meanwhile is not
    /// followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let fd = readable(|flags| {
            let opened =
                rustix::fs::openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
            match opened {
                // A kernel, or a sandbox, without this call.
                Err(Errno::NOSYS | Errno::PERM) => {
                    rustix::fs::open(&path, flags | OFlags::NOFOLLOW, Mode::empty())
                }
                other => other,
            }
        })?;
        Self::from_fd(fd, path)
    }

    /// Opens a directory, creating it if missing. New directories are synced: files in a directory
    /// that is not on disk are lost.
    pub fn make(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Self::open(path);
        }
        let missing = path.ancestors().take_while(|dir| !dir.is_dir());
        let missing = missing.count();
        std::fs::create_dir_all(path)?;
        let made = Self::open(path)?;
        for dir in made.path().ancestors().skip(1).take(missing) {
            Self::open(dir)?.sync()?;
        }
        Ok(made)
    }

    /// Opens a directory below this one. No component of the path may be a link; see [`is_way_out`]
    /// for the error.
    pub fn open_below(&self, inner: &Path) -> io::Result<Self> {
        let at = if inner.as_os_str().is_empty() {
            Path::new(".")
        } else {
            inner
        };
        let fd =
            readable(|flags| rustix::fs::openat2(&self.fd, at, flags, Mode::empty(), below()))?;
        Self::from_fd(fd, self.path.join(inner))
    }

    /// The same, creating the missing part of the path step by step from one open directory to the
    /// next, and syncing it.
    pub fn make_below(&self, inner: &Path) -> io::Result<Self> {
        let mut dir = self.clone();
        for part in inner.components() {
            let Component::Normal(name) = part else {
                return Err(Errno::XDEV.into());
            };
            let name = Path::new(name);
            dir = match dir.open_below(name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    match rustix::fs::mkdirat(&dir.fd, name, Mode::from_raw_mode(0o777)) {
                        // Another process was faster.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                    let made = dir.open_below(name)?;
                    dir.sync()?;
                    made
                }
                opened => opened?,
            };
        }
        Ok(dir)
    }

    /// The path relative to this directory, with links resolved as far as it exists. `None` if it
    /// is elsewhere or cannot be resolved. This is only a name: [`Self::open_below`] decides what
    /// it leads to.
    #[must_use]
    pub fn relative(&self, path: &Path) -> Option<PathBuf> {
        let real = real(path)?;
        real.strip_prefix(&self.path).map(Path::to_owned).ok()
    }

    /// Its absolute path without links, as of when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode.
    #[must_use]
    pub fn id(&self) -> (u64, u64) {
        self.id
    }

    fn from_fd(fd: OwnedFd, path: PathBuf) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self {
            fd: Arc::new(fd),
            path,
            id: (stat.st_dev, stat.st_ino),
        })
    }

    /// The entry at a name; `None` if there is none.
    pub(crate) fn stat_entry(&self, name: &OsStr) -> io::Result<Option<Entry>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Entry {
                id: (stat.st_dev, stat.st_ino),
                kind: FileType::from_raw_mode(stat.st_mode),
                size: u64::try_from(stat.st_size).unwrap_or_default(),
                written: stat.st_mtime,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file for reading only. Does not follow a link or wait for a pipe.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?.into())
    }

    /// Creates a file that must not exist.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.fd, name, flags, mode)?.into())
    }

    /// Opens a file for writing without truncating it, creating it if missing. A link is not
    /// followed.
    pub(crate) fn open_or_create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.fd, name, flags, mode)?.into())
    }

    /// Renames a file, here or into another directory. An existing file is never replaced.
    pub(crate) fn rename(&self, from: &OsStr, to: &Self, name: &OsStr) -> Result<(), Errno> {
        let renamed =
            rustix::fs::renameat_with(&self.fd, from, &to.fd, name, RenameFlags::NOREPLACE);
        match renamed {
            // Some file systems do not support the flag. A link fails as well if the target exists;
            // a crash in between leaves both names.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(&self.fd, from, &to.fd, name, AtFlags::empty())?;
                rustix::fs::unlinkat(&self.fd, from, AtFlags::empty())
            }
            other => other,
        }
    }

    /// Removes a name.
    pub(crate) fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Syncs the names to disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // A file system without a disk, or a directory without read permission (opened with
            // `O_PATH`).
            Err(Errno::INVAL | Errno::ROFS | Errno::BADF) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether an error of [`Dir::open_below`] means that the path leaves the directory or passes
/// through a link.
#[must_use]
pub fn is_way_out(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::LOOP | Errno::XDEV))
}

fn below() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS
}

/// Opens for reading, so that names can be synced; if that is not allowed, only for traversal.
fn readable(open: impl Fn(OFlags) -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match open(flags | OFlags::RDONLY) {
        Err(Errno::ACCESS) => open(flags | OFlags::PATH),
        opened => opened,
    }
}

/// A path with links resolved as far as it exists; `None` if it cannot be resolved.
#[must_use]
pub fn real(path: &Path) -> Option<PathBuf> {
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(is_plain) {
        return None;
    }
    let mut there = path;
    let mut missing = Vec::new();
    loop {
        if let Ok(real) = there.canonicalize() {
            missing.reverse();
            return Some(missing.into_iter().fold(real, |path, name| path.join(name)));
        }
        // A dangling link could lead elsewhere in a moment.
        if there.symlink_metadata().is_ok() {
            return None;
        }
        missing.push(there.file_name()?.to_owned());
        there = there.parent()?;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_is_opened_or_made_through_a_link() {
        let base = tempfile::tempdir().unwrap();
        let (root, outside) = (base.path().join("root"), base.path().join("outside"));
        std::fs::create_dir(&root).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, root.join("link")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        let dir = Dir::open(&root).unwrap();
        for path in ["link", "link/a", "magic/tmp", "..", "../outside"] {
            let opened = dir.open_below(Path::new(path)).unwrap_err();
            assert!(is_way_out(&opened), "{path}: {opened}");
            let made = dir.make_below(Path::new(path)).unwrap_err();
            assert!(is_way_out(&made), "{path}: {made}");
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
        let made = dir.make_below(Path::new("a/b/c")).unwrap();
        assert!(root.join("a/b/c").is_dir());
        assert_eq!(made.path(), dir.path().join("a/b/c"));
        assert_eq!(dir.open_below(Path::new("")).unwrap().id(), dir.id());
    }

    #[test]
    fn names_in_it_are_found_whatever_leads_to_them() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        symlink(&root, base.path().join("other-way")).unwrap();
        symlink("real", root.join("inside")).unwrap();
        let dir = Dir::open(&root).unwrap();
        let relative = |path: &str| dir.relative(&base.path().join(path));
        assert_eq!(relative("root/real/x"), Some("real/x".into()));
        assert_eq!(relative("other-way/inside/x"), Some("real/x".into()));
        assert_eq!(relative("root"), Some(PathBuf::new()));
        assert_eq!(relative("root/../x"), None);
        assert_eq!(relative("rooted"), None);
    }
}
