//! A folder that is held open: whatever happens to its path meanwhile, the files are the ones in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::io::Errno;

/// A folder.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    path: PathBuf,
    id: (u64, u64),
}

/// What is at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Device and inode.
    pub(super) id: (u64, u64),
    /// What it is; a link is told as a link.
    pub(super) kind: FileType,
    /// Bytes.
    pub(super) size: u64,
    /// Last write, in seconds.
    pub(super) written: i64,
}

impl Folder {
    /// Opens it. The path is freed from links first; one that is put into it meanwhile is not followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened =
            rustix::fs::openat2(CWD, &path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
        let fd = match opened {
            // A kernel, or a sandbox, without this call.
            Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(&path, flags, Mode::empty()),
            other => other,
        }?;
        let stat = rustix::fs::fstat(&fd)?;
        Ok(Self {
            fd,
            path,
            id: (stat.st_dev, stat.st_ino),
        })
    }

    /// Its path, absolute and without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Device and inode.
    pub(super) fn id(&self) -> (u64, u64) {
        self.id
    }

    /// What is at a name; nothing when nothing is there.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Option<Entry>> {
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

    /// Opens a file for reading alone. Neither a link is followed nor a pipe waited for.
    pub(super) fn read(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::openat(&self.fd, name, flags, Mode::empty())?.into())
    }

    /// Makes a file that was not there.
    pub(super) fn make(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(rustix::fs::openat(&self.fd, name, flags, mode)?.into())
    }

    /// Gives a file another name, here or in another folder. What has that name is never replaced.
    pub(super) fn rename(&self, from: &OsStr, to: &Self, name: &OsStr) -> Result<(), Errno> {
        let renamed =
            rustix::fs::renameat_with(&self.fd, from, &to.fd, name, RenameFlags::NOREPLACE);
        match renamed {
            // Some file systems do not know the flag. A link is refused as well where something is; an end in between leaves both names.
            Err(Errno::INVAL | Errno::NOSYS) => {
                rustix::fs::linkat(&self.fd, from, &to.fd, name, AtFlags::empty())?;
                rustix::fs::unlinkat(&self.fd, from, AtFlags::empty())
            }
            other => other,
        }
    }

    /// Removes a name.
    pub(super) fn remove(&self, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())
    }

    /// Brings the names to the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        match rustix::fs::fsync(&self.fd) {
            // A file system without a disk below.
            Err(Errno::INVAL | Errno::ROFS) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
