//! Watches databases and tells the first moment at which one goes bad.
//!
//! The kernel tells which file of a folder was written (inotify); then the header is read, not oftener than a bound. One descriptor
//! is held, however many databases there are; each look opens the file for reading, reads the first page and closes it.

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

/// A database is looked at this often at most.
const SELDOM: Duration = Duration::from_millis(5);
/// What is wrong must be so this often in a row: a look may fall into the middle of a write.
const LOOKS: usize = 3;
const APART: Duration = Duration::from_millis(2);

/// What happened to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChange {
    /// It went bad, or was bad when the watch began.
    Bad(Vec<FileFinding>),
    /// It is sound again.
    Sound,
    /// It is gone from its path.
    Deleted,
    /// Another file is at its path.
    Replaced,
    /// A database that was not there before.
    Appeared,
}

/// A change, and of which database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEvent {
    /// The database.
    pub path: PathBuf,
    /// What happened.
    pub change: FileChange,
}

/// What is known of a database.
#[derive(Debug)]
struct KnownFile {
    id: Option<(u64, u64)>,
    is_bad: bool,
    looked: Instant,
    is_due: bool,
}

/// A watch over databases.
#[derive(Debug)]
pub struct FileWatch {
    inotify: OwnedFd,
    folders: BTreeMap<i32, Folder>,
    known: BTreeMap<PathBuf, KnownFile>,
    looks: u64,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Whether databases that come later are watched, too.
    whole: bool,
}

impl FileWatch {
    /// Begins to watch these files, and all databases of these folders. What is bad already is told by the first look.
    pub fn start(paths: &[PathBuf]) -> Result<Self, Error> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(|error| Error::io(Path::new("inotify"), "no watch can be made", error))?;
        let mut watch = Self {
            inotify,
            folders: BTreeMap::new(),
            known: BTreeMap::new(),
            looks: 0,
        };
        for path in paths {
            let real = path
                .canonicalize()
                .map_err(|error| Error::io(path, "cannot be watched", error))?;
            if real.is_dir() {
                watch.add_folder(&real, true)?;
                watch.add_databases(&real)?;
            } else {
                check_database(&real)?;
                watch.add_folder(real.parent().unwrap_or(Path::new("/")), false)?;
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

    /// How often one was looked at.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// When there is something to look at without another event; none when there is nothing.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let due = self.known.values().filter(|known| known.is_due);
        due.map(|known| known.looked + SELDOM).min()
    }

    fn add_folder(&mut self, path: &Path, whole: bool) -> Result<(), Error> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        let number = inotify::add_watch(&self.inotify, path, flags)
            .map_err(|error| Error::io(path, "cannot be watched", error))?;
        let folder = self.folders.entry(number).or_insert(Folder {
            path: path.to_owned(),
            whole,
        });
        folder.whole |= whole;
        Ok(())
    }

    fn add_databases(&mut self, folder: &Path) -> Result<(), Error> {
        let failed = |error| Error::io(folder, "cannot be listed", error);
        for entry in folder.read_dir().map_err(failed)? {
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
            KnownFile {
                id: Stamp::at(path).map(|stamp| stamp.id),
                is_bad: false,
                looked: Instant::now()
                    .checked_sub(SELDOM)
                    .unwrap_or_else(Instant::now),
                is_due: true,
            },
        );
    }

    /// Takes what the kernel has told, looks at what is due, and gives what changed.
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
                    if let (Some(name), Some(folder)) =
                        (event.file_name(), self.folders.get(&event.wd()))
                    {
                        told.push((
                            folder.path.join(OsStr::from_bytes(name.to_bytes())),
                            folder.whole,
                        ));
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Error::io(Path::new("inotify"), "cannot be read", error)),
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

    /// A file was written, made, moved or removed.
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

/// Refuses what is no database, and was none: everything about it would look bad.
fn check_database(path: &Path) -> Result<(), Error> {
    let first = read::piece(&read::open(path)?, 0, 4096)
        .map_err(|error| Error::io(path, "cannot be read", error))?;
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let has_log = HolderRole::Wal.path(path).exists();
    if first.is_empty() || is_database_by(&first, name, has_log) {
        return Ok(());
    }
    Err(Error::NotAFile {
        path: path.to_owned(),
        what: "no SQLite database: only those can be watched",
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

/// What is wrong with the header, or with that of the log, in several looks.
fn wrong(path: &Path) -> Vec<FileFinding> {
    let mut found = glance(path);
    // No writer of a database ever passes through a TLS record, and who repairs it at once would hide it.
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
    // One that nobody has written to yet.
    if first.is_empty() {
        return Vec::new();
    }
    let size = first.len() as u64;
    let image = crate::sqlite::judge::DatabaseImage {
        size,
        is_encrypted: crate::sqlite::encryption::is_encrypted(&first, size, &[]),
        first,
        // Whether size and count agree is known with the log alone, which is too long to be read at each write.
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
            "the log has no sound header",
        ));
    }
    found
}
