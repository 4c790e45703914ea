//! Which program a process runs: its executable, other files that it was given, the image of its
//! container. Another stamp after a restart means that a file was replaced.

use fdguard_core::{Pid, Text};
use fdguard_proc::link;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, statat};
use serde::{Deserialize, Serialize};

use super::{Probe, files};

/// A file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Device and inode.
    pub file: (u64, u64),
    /// Bytes.
    pub size: i64,
    /// When it was last written, in seconds and nanoseconds since the epoch.
    pub modified: (i64, i64),
}

impl FileStamp {
    fn of(stat: &Stat) -> Option<Self> {
        Some(Self {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size,
            modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).ok()?),
        })
    }

    /// Whether the content seems to be the same, although the file may be a copy: the layers of an
    /// image have another device in each container.
    #[must_use]
    pub fn is_copy_of(&self, other: &Self) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }
}

/// What a process's container was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerImage {
    /// It is in no container.
    Outside,
    /// The state of the runtime could not be read, or does not say.
    Unknown,
    /// The id of the image.
    Id(String),
}

impl Probe {
    /// The file that a process executes; `None` if it cannot be read.
    #[must_use]
    pub fn executable(&self, pid: Pid) -> Option<FileStamp> {
        let stat = statat(&self.proc, format!("{pid}/exe"), AtFlags::empty()).ok()?;
        FileStamp::of(&stat)
    }

    /// The name of that file, without its directory; `None` if it cannot be read.
    #[must_use]
    pub fn executable_name(&self, pid: Pid) -> Option<Text> {
        let path = files::read_link(&self.proc, format!("{pid}/exe")).ok()?;
        Some(Text::from(link::file_name(&path)))
    }

    /// A regular file at a path as the process sees it; `None` if there is none, or it cannot be
    /// read.
    #[must_use]
    pub fn file_of(&self, pid: Pid, path: &str) -> Option<FileStamp> {
        let stat = if path.starts_with('/') {
            let at = OFlags::PATH | OFlags::CLOEXEC;
            let root = format!("{pid}/root");
            let root = rustix::fs::openat(&self.proc, root, at, Mode::empty()).ok()?;
            // The links in a foreign root must not lead out of it.
            let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            fstat(openat2(&root, path, at, Mode::empty(), inside).ok()?).ok()?
        } else {
            statat(&self.proc, format!("{pid}/cwd/{path}"), AtFlags::empty()).ok()?
        };
        let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        is_file.then(|| FileStamp::of(&stat)).flatten()
    }
}
