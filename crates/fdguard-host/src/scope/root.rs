//! A directory that no path of a scope may leave: not by `..`, not by a link, not by a directory
//! that is replaced meanwhile.
//!
//! The kernel resolves a path below the directory (`openat2` with `RESOLVE_BENEATH`) when it is
//! used, and every operation is relative to the parent that was found. Checking names before using
//! them would be a race.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use fdguard_files::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat2, statat, unlinkat};
use rustix::io::Errno;

use crate::roots::{Below, Roots};

/// How often to retry resolving a path that is being renamed.
const RENAMED: usize = 16;

/// Why a path was not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathRefusal {
    /// It is not below the directory.
    #[error("{} is outside {}", path.display(), root.display())]
    Outside {
        /// The path as given.
        path: PathBuf,
        /// The directory.
        root: PathBuf,
    },
    /// Another directory has replaced it.
    #[error("{}: another directory has replaced it", .0.display())]
    Replaced(PathBuf),
    /// The system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The directory.
#[derive(Clone, Debug)]
pub struct ScopeRoot {
    path: PathBuf,
    id: (u64, u64),
    /// Opened from here, without following links; `None` to open it by its path.
    below: Option<Below>,
}

/// An entry below the directory.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory that contains it.
    pub(super) parent: OwnedFd,
    /// Its name there.
    pub(super) name: OsString,
    /// Its file type.
    pub(super) kind: FileType,
    /// Device and inode.
    pub(super) id: (u64, u64),
}

impl ScopeRoot {
    /// Remembers the identity of the directory, not only its name.
    pub fn new(path: &Path) -> Result<Self, PathRefusal> {
        let failed = |source| PathRefusal::Io {
            path: path.to_owned(),
            source,
        };
        let whole = path.canonicalize().map_err(failed)?;
        let meta = whole.metadata().map_err(failed)?;
        if !meta.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let id = (meta.dev(), meta.ino());
        Ok(Self {
            path: whole,
            id,
            below: None,
        })
    }

    /// The same for a directory that must be below one of these roots.
    pub(super) fn in_roots(path: &Path, roots: &Roots) -> Result<Self, PathRefusal> {
        let io = |source| PathRefusal::Io {
            path: path.to_owned(),
            source,
        };
        let below = roots
            .find(path)
            .map_err(|error| io(io::Error::new(io::ErrorKind::PermissionDenied, error)))?;
        let id = below.open().map_err(io)?.id();
        Ok(Self {
            path: below.path(),
            id,
            below: Some(below),
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path relative to the directory, from a relative or absolute path. It need not exist.
    pub fn relative(&self, path: &Path) -> Result<PathBuf, PathRefusal> {
        let outside = || PathRefusal::Outside {
            path: path.to_owned(),
            root: self.path.clone(),
        };
        let inner = if path.is_relative() {
            path.to_owned()
        } else if let Ok(inner) = path.strip_prefix(&self.path) {
            inner.to_owned()
        } else {
            // The directory may have been named by another path that leads to it.
            let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
            let name = path.file_name().ok_or_else(outside)?;
            let whole = parent.ok_or_else(outside)?.join(name);
            let inner = whole.strip_prefix(&self.path);
            inner.map_err(|_not_below| outside())?.to_owned()
        };
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if inner.as_os_str().is_empty() || !inner.components().all(is_plain) {
            return Err(outside());
        }
        Ok(inner)
    }

    /// What is at a path that [`ScopeRoot::relative`] returned; `None` if it does not exist. A link
    /// itself is not followed, but rejected if it leads out.
    pub(super) fn find(&self, inner: &Path) -> Result<Option<Place>, PathRefusal> {
        let Some((parent, name)) = self.parent(inner)? else {
            return Ok(None);
        };
        let failed = |errno: Errno| self.why(inner, errno);
        let stat = match statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Symlink
            && let Err(Errno::XDEV) = self.resolve(inner)
        {
            return Err(failed(Errno::XDEV));
        }
        Ok(Some(Place {
            parent,
            name,
            kind,
            id: (stat.st_dev, stat.st_ino),
        }))
    }

    /// The parent directory of a path and the name in it; `None` if there is no such directory.
    pub(super) fn parent(&self, inner: &Path) -> Result<Option<(OwnedFd, OsString)>, PathRefusal> {
        let name = inner.file_name().unwrap_or(OsStr::new("")).to_owned();
        let directory = match inner.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match self.resolve(directory) {
            Ok(parent) => Ok(Some((parent, name))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::STALE) => Err(PathRefusal::Replaced(self.path.clone())),
            Err(errno) => Err(self.why(inner, errno)),
        }
    }

    /// Opens a path for reading, without blocking on a pipe.
    pub(super) fn open(&self, inner: &Path) -> Result<OwnedFd, PathRefusal> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = self.open_beneath(inner, flags, Mode::empty());
        opened.map_err(|errno| self.why(inner, errno))
    }

    /// Opens a file for appending and creates it if missing. Rejects a pipe, a device or a link
    /// that leads out.
    pub(super) fn append(&self, inner: &Path) -> Result<OwnedFd, PathRefusal> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
        let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = self.open_beneath(inner, flags, Mode::from_raw_mode(0o600));
        let opened = opened.and_then(
            |file| match FileType::from_raw_mode(fstat(&file)?.st_mode) {
                FileType::RegularFile => Ok(file),
                _ => Err(Errno::INVAL),
            },
        );
        opened.map_err(|errno| self.why(inner, errno))
    }

    /// Creates a private directory; returns its device and inode.
    pub(super) fn make(&self, name: &Path) -> Result<(u64, u64), PathRefusal> {
        let made = self.directory().and_then(|root| {
            rustix::fs::mkdirat(&root, name, Mode::RWXU)?;
            let stat = statat(&root, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok((stat.st_dev, stat.st_ino))
        });
        made.map_err(|errno| self.why(name, errno))
    }

    /// Removes an empty directory.
    pub(super) fn remove_empty(&self, name: &Path) -> Result<(), PathRefusal> {
        let removed = self
            .directory()
            .and_then(|root| unlinkat(&root, name, AtFlags::REMOVEDIR));
        removed.map_err(|errno| self.why(name, errno))
    }

    fn resolve(&self, inner: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        self.open_beneath(inner, flags, Mode::empty())
    }

    /// Links that stay inside the directory are followed.
    fn open_beneath(&self, inner: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let directory = self.directory()?;
        for _ in 0..RENAMED {
            match openat2(&directory, inner, flags, mode, beneath()) {
                // Something was renamed while the kernel followed a `..` of a link.
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        Err(Errno::AGAIN)
    }

    /// The directory itself, held open: for operations of several steps.
    pub(super) fn dir(&self) -> Result<Dir, PathRefusal> {
        self.directory()
            .map_err(|errno| self.why(Path::new(""), errno))
    }

    /// The directory itself; `STALE` if it was replaced.
    fn directory(&self) -> Result<Dir, Errno> {
        let opened = match &self.below {
            Some(below) => below.open(),
            None => Dir::open(&self.path),
        };
        let directory =
            opened.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        if directory.id() == self.id {
            Ok(directory)
        } else {
            Err(Errno::STALE)
        }
    }

    fn why(&self, inner: &Path, errno: Errno) -> PathRefusal {
        let path = self.path.join(inner);
        match errno {
            Errno::XDEV | Errno::LOOP => PathRefusal::Outside {
                path,
                root: self.path.clone(),
            },
            Errno::STALE => PathRefusal::Replaced(self.path.clone()),
            errno => PathRefusal::Io {
                path,
                source: errno.into(),
            },
        }
    }
}

fn beneath() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn r52_names_that_lead_out_are_refused_before_anything_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let root = ScopeRoot::new(directory.path()).unwrap();
        for bad in ["", "..", "../x", "a/../../x", "/etc/passwd", "/", "./x/.."] {
            assert!(root.relative(Path::new(bad)).is_err(), "{bad}");
        }
        assert_eq!(root.relative(Path::new("a/b")).unwrap(), Path::new("a/b"));
        let whole = root.path().join("a b\n");
        assert_eq!(root.relative(&whole).unwrap(), Path::new("a b\n"));
    }

    #[test]
    fn r52_links_out_of_the_dir_are_refused_and_links_in_it_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        std::fs::create_dir(directory.path().join("real")).unwrap();
        std::fs::write(directory.path().join("real/log"), "l").unwrap();
        let link = |to: &Path, name: &str| symlink(to, directory.path().join(name)).unwrap();
        link(outside.path(), "way-out");
        link(&outside.path().join("secret"), "leaf-out");
        link(Path::new("real"), "inside");
        let root = ScopeRoot::new(directory.path()).unwrap();
        for bad in ["way-out/secret", "leaf-out"] {
            let found = root.find(Path::new(bad));
            assert!(
                matches!(found, Err(PathRefusal::Outside { .. })),
                "{found:?}"
            );
            assert!(root.open(Path::new(bad)).is_err());
        }
        let found = root.find(Path::new("inside/log")).unwrap().unwrap();
        assert_eq!(found.kind, FileType::RegularFile);
        assert!(root.find(Path::new("inside/none")).unwrap().is_none());
        assert!(root.find(Path::new("none/none")).unwrap().is_none());
    }

    #[test]
    fn a_dir_that_took_the_name_is_another_dir() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("root");
        std::fs::create_dir(&path).unwrap();
        let root = ScopeRoot::new(&path).unwrap();
        std::fs::rename(&path, base.path().join("old")).unwrap();
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("f"), "f").unwrap();
        let found = root.find(Path::new("f"));
        assert!(matches!(found, Err(PathRefusal::Replaced(_))), "{found:?}");
        std::fs::remove_dir_all(&path).unwrap();
        assert!(
            root.find(Path::new("f")).unwrap().is_none(),
            "all of it is gone"
        );
    }
}
