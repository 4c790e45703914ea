//! Watches databases and reports the moment at which one is damaged.
//!
//! inotify reports which file of a directory was written. The header is then read, at a bounded
//! rate. One descriptor is held, no matter how many databases there are; each check opens the file
//! read-only, reads the first page and closes it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::Error;
use crate::finding::FileFinding;
use crate::holding::HolderRole;
use crate::inspection::matters;
use crate::read::{self, Stamp};
use crate::sqlite::judge::is_database as is_database_by;
use crate::sqlite::wal::{HEAD, WalHeader};

/// Minimum time between two checks of a database.
const SELDOM: Duration = Duration::from_millis(5);
/// A problem must be seen this often in a row: a read may happen in the middle of a write.
const LOOKS: usize = 3;
const APART: Duration = Duration::from_millis(2);

/// What happened to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It was damaged, now or when the watch started.
    Bad(Vec<FileFinding>),
    /// It is sound again.
    Sound,
    /// It is gone from its path.
    Deleted,
    /// Another file is at its path.
    Replaced,
    /// A new database.
    Appeared,
}

/// A change of one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEvent {
    /// The database.
    pub path: PathBuf,
    /// What happened.
    pub change: FileChange,
}

/// The state of a database.
#[derive(Debug)]
struct DatabaseState {
    id: Option<(u64, u64)>,
    is_bad: bool,
    looked: Instant,
    is_due: bool,
}

/// A watch over databases.
#[derive(Debug)]
pub struct FileWatch {
    inotify: OwnedFd,
    dirs: BTreeMap<i32, Dir>,
    known: BTreeMap<PathBuf, DatabaseState>,
    looks: u64,
}

#[derive(Debug)]
struct Dir {
    path: PathBuf,
    /// Whether new databases are watched, too.
    whole: bool,
}

impl FileWatch {
    /// Starts watching these files, and all databases in these directories. Existing damage is
    /// reported by the first check.
    pub fn start(paths: &[PathBuf]) -> Result<Self, Error> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| Error::io(Path::new("inotify"), "cannot create", error))?;
        let mut watch = Self {
            inotify,
            dirs: BTreeMap::new(),
            known: BTreeMap::new(),
            looks: 0,
        };
        for path in paths {
            let real = path
                .canonicalize()
                .map_err(|error| Error::io(path, "cannot watch", error))?;
            if real.is_dir() {
                watch.add_dir(&real, true)?;
                watch.add_databases(&real)?;
            } else {
                check_database(&real)?;
                watch.add_dir(real.parent().unwrap_or(Path::new("/")), false)?;
                watch.add(&real);
            }
        }
        Ok(watch)
    }

    /// How many databases are watched.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.known.len()
    }

    /// Number of checks.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// When the next check is scheduled without another event; `None` if none is.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let due = self.known.values().filter(|known| known.is_due);
        due.map(|known| known.looked + SELDOM).min()
    }

    fn add_dir(&mut self, path: &Path, whole: bool) -> Result<(), Error> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        let number = inotify::add_watch(&self.inotify, path, flags)
            .map_err(|error| Error::io(path, "cannot watch", error))?;
        let dir = self.dirs.entry(number).or_insert(Dir {
            path: path.to_owned(),
            whole,
        });
        dir.whole |= whole;
        Ok(())
    }

    fn add_databases(&mut self, dir: &Path) -> Result<(), Error> {
        let failed = |error| Error::io(dir, "cannot list", error);
        for entry in dir.read_dir().map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if is_database(&path) {
                self.add(&path);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &Path) {
        self.known.insert(
            path.to_owned(),
            DatabaseState {
                id: Stamp::at(path).map(|stamp| stamp.id),
                is_bad: false,
                looked: Instant::now()
                    .checked_sub(SELDOM)
                    .unwrap_or_else(Instant::now),
                is_due: true,
            },
        );
    }

    /// Processes the kernel's events, runs the scheduled checks, and returns what changed.
    pub fn poll(&mut self) -> Result<Vec<FileEvent>, Error> {
        let mut events = self.read_events()?;
        let now = Instant::now();
        let due: Vec<PathBuf> = self
            .known
            .iter()
            .filter(|(_, known)| known.is_due && now >= known.looked + SELDOM)
            .map(|(path, _)| path.clone())
            .collect();
        for path in due {
            events.extend(self.look_at(&path));
        }
        Ok(events)
    }

    fn read_events(&mut self) -> Result<Vec<FileEvent>, Error> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut told = Vec::new();
        let mut is_overrun = false;
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        loop {
            match reader.next() {
                Ok(event) => {
                    is_overrun |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                    if let (Some(name), Some(dir)) = (event.file_name(), self.dirs.get(&event.wd()))
                    {
                        told.push((dir.path.join(OsStr::from_bytes(name.to_bytes())), dir.whole));
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io(Path::new("inotify"), "cannot read", error)),
            }
        }
        if is_overrun {
            self.known
                .values_mut()
                .for_each(|known| known.is_due = true);
        }
        told.dedup();
        Ok(told
            .into_iter()
            .filter_map(|(path, whole)| self.touched(&path, whole))
            .collect())
    }

    /// A file was written, created, moved or removed.
    fn touched(&mut self, path: &Path, whole: bool) -> Option<FileEvent> {
        let path = database_of(path);
        if let Some(known) = self.known.get_mut(&path) {
            known.is_due = true;
            return None;
        }
        if !whole || !is_database(&path) {
            return None;
        }
        self.add(&path);
        Some(FileEvent {
            path,
            change: FileChange::Appeared,
        })
    }

    fn look_at(&mut self, path: &Path) -> Vec<FileEvent> {
        let Some(known) = self.known.get_mut(path) else {
            return Vec::new();
        };
        known.is_due = false;
        known.looked = Instant::now();
        self.looks += 1;
        let mut changes = Vec::new();
        let id = Stamp::at(path).map(|stamp| stamp.id);
        match (known.id, id) {
            (Some(_), None) => changes.push(FileChange::Deleted),
            (Some(before), Some(now)) if before != now => changes.push(FileChange::Replaced),
            (None, Some(_)) => changes.push(FileChange::Appeared),
            _ => {}
        }
        known.id = id;
        if id.is_some() {
            let found = wrong(path);
            let is_bad = !found.is_empty();
            match (known.is_bad, is_bad) {
                (false, true) => changes.push(FileChange::Bad(found)),
                (true, false) => changes.push(FileChange::Sound),
                _ => {}
            }
            known.is_bad = is_bad;
        } else {
            known.is_bad = false;
        }
        let event = |change| FileEvent {
            path: path.to_owned(),
            change,
        };
        changes.into_iter().map(event).collect()
    }
}

impl AsFd for FileWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

fn is_database(path: &Path) -> bool {
    read::open(path)
        .ok()
        .and_then(|file| read::piece(&file, 0, 16).ok())
        .is_some_and(|first| read::has_magic(&first))
}

/// Rejects a file that is not and was not a database: everything about it would look damaged.
fn check_database(path: &Path) -> Result<(), Error> {
    let first = read::piece(&read::open(path)?, 0, 4096)
        .map_err(|error| Error::io(path, "cannot read", error))?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let has_log = HolderRole::Wal.path(path).exists();
    if first.is_empty() || is_database_by(&first, name, has_log) {
        return Ok(());
    }
    Err(Error::NotAFile {
        path: path.to_owned(),
        what: "not a SQLite database: only databases can be watched",
    })
}

/// The database that a side file belongs to.
fn database_of(path: &Path) -> PathBuf {
    let name = path.as_os_str().as_bytes();
    let roles = [HolderRole::Wal, HolderRole::Shm, HolderRole::Journal];
    let stem = roles
        .iter()
        .find_map(|role| name.strip_suffix(role.suffix().as_bytes()));
    stem.map_or_else(
        || path.to_owned(),
        |stem| PathBuf::from(OsStr::from_bytes(stem)),
    )
}

/// Problems of the header, or of the WAL header, confirmed by several reads.
fn wrong(path: &Path) -> Vec<FileFinding> {
    let mut found = glance(path);
    // No database writer ever produces a TLS record, and a program that repairs it at once would
    // hide it.
    let is_certain = |found: &[FileFinding]| {
        found.is_empty() || found.iter().any(|one| one.rule == "tls-record")
    };
    for _ in 1..LOOKS {
        if is_certain(&found) {
            return found;
        }
        std::thread::sleep(APART);
        let again = glance(path);
        found.retain(|one| again.contains(one));
    }
    found
}

fn glance(path: &Path) -> Vec<FileFinding> {
    let Some(first) = read::open(path)
        .ok()
        .and_then(|file| read::piece(&file, 0, 65_536).ok())
    else {
        return Vec::new();
    };
    // A database that has not been written yet.
    if first.is_empty() {
        return Vec::new();
    }
    let size = first.len() as u64;
    let image = crate::sqlite::judge::DatabaseImage {
        size,
        is_encrypted: crate::sqlite::encryption::is_encrypted(&first, size, &[]),
        first,
        // Whether size and page count agree depends on the log, which is too long to read at each
        // write.
        journal: Some(crate::sqlite::Journal {
            size: 0,
            is_hot: true,
            pages: None,
            pages_before: None,
        }),
        ..Default::default()
    };
    let mut found = image.judge();
    found.retain(matters);
    let log = read::open(&HolderRole::Wal.path(path))
        .ok()
        .and_then(|file| read::piece(&file, 0, HEAD as u64).ok());
    if log.is_some_and(|head| {
        head.len() == HEAD && head.iter().any(|byte| *byte != 0) && WalHeader::read(&head).is_none()
    }) {
        found.push(FileFinding::critical(
            "wal-header",
            None,
            "the WAL has no valid header",
        ));
    }
    found
}
