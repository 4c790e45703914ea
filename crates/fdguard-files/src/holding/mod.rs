//! Finds the processes that hold a file and, for a database, its side files. `judge` evaluates the
//! result.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fdguard_core::{Gap, Text};
use fdguard_probe::Probe;
use fdguard_probe::linux::holders::{FileHold, FileHolders, HoldKind, SoughtFile};
use fdguard_proc::locks::HeldLock;
use serde::Serialize;

use crate::Error;

pub mod judge;

/// The file itself and its side files, in the order of [`HolderRole`].
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// Which of the files of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderRole {
    /// The database or the requested file.
    Main,
    /// The write-ahead log.
    Wal,
    /// Its index.
    Shm,
    /// The rollback journal.
    Journal,
}

impl HolderRole {
    const ALL: [Self; 4] = [Self::Main, Self::Wal, Self::Shm, Self::Journal];

    /// The suffix after the database's name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        SUFFIXES[self as usize]
    }

    fn of(which: usize) -> Self {
        Self::ALL.get(which).copied().unwrap_or(Self::Main)
    }

    /// The path of this file of a database.
    #[must_use]
    pub fn path(self, database: &Path) -> PathBuf {
        let mut path = database.as_os_str().to_owned();
        path.push(self.suffix());
        path.into()
    }
}

/// The processes that hold a file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Holding {
    /// Each process once, ascending.
    pub processes: Vec<HoldingProcess>,
    /// Whether every process could be read: otherwise absence proves nothing.
    pub is_complete: bool,
    /// Whether the kernel's list of locks could be read.
    pub has_locks: bool,
    /// What could not be seen.
    #[serde(skip)]
    pub gaps: Vec<Gap>,
}

/// A process that holds the file or one of its side files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HoldingProcess {
    /// Its number.
    pub pid: u32,
    /// Its parent; unknown if it cannot be read.
    pub ppid: Option<u32>,
    /// When it started, in clock ticks after boot.
    pub start_ticks: u64,
    /// Its command.
    pub comm: Text,
    /// Its descriptors and mappings of the file itself.
    pub main: Grip,
    /// Those of the write-ahead log: as many as live connections.
    pub wal: Grip,
    /// Those of the index.
    pub shm: Grip,
    /// Those of the journal.
    pub journal: Grip,
    /// Live connections with a write-ahead log.
    pub connections: usize,
    /// Descriptors of the database that SQLite keeps open, because closing them would drop its
    /// locks.
    pub parked: usize,
    /// Its locks.
    pub locks: HolderLocks,
}

/// How a process holds one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Grip {
    /// Descriptors of the current file.
    pub fds: Vec<u32>,
    /// Those of them that can write.
    pub writable: usize,
    /// Whether it is mapped so that writes go into the file.
    pub mapped: bool,
    /// Rings that have it registered.
    pub rings: Vec<u32>,
    /// Descriptors of a deleted or replaced file that was at this path.
    pub gone: Vec<u32>,
}

impl Grip {
    /// Whether it can write.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.writable > 0 || self.mapped
    }

    fn add(&mut self, held: &FileHold) {
        match held.by {
            HoldKind::Descriptor { fd, .. } if !held.current => self.gone.push(fd),
            HoldKind::Descriptor { fd, .. } => {
                self.fds.push(fd);
                self.writable += usize::from(held.by.writes() == Some(true));
            }
            HoldKind::Mapping => self.mapped |= held.current,
            HoldKind::Ring { fd } => self.rings.push(fd),
        }
    }
}

/// Locks of a process on a database and its index; empty if they could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HolderLocks {
    /// Whether it holds the range that every connection with a write-ahead log holds while it is
    /// open.
    pub shared: bool,
    /// Whether it holds any lock on the database.
    pub any: bool,
    /// Whether it holds the byte that every process with the WAL index open holds.
    pub everybody: bool,
    /// Whether it is writing now.
    pub writing: bool,
    /// The kinds of readers (0 to 4) that it is now.
    pub reading: Vec<u8>,
}

impl HoldingProcess {
    /// How it holds this one.
    #[must_use]
    pub fn grip(&self, role: HolderRole) -> &Grip {
        match role {
            HolderRole::Main => &self.main,
            HolderRole::Wal => &self.wal,
            HolderRole::Shm => &self.shm,
            HolderRole::Journal => &self.journal,
        }
    }

    fn grip_mut(&mut self, role: HolderRole) -> &mut Grip {
        match role {
            HolderRole::Main => &mut self.main,
            HolderRole::Wal => &mut self.wal,
            HolderRole::Shm => &mut self.shm,
            HolderRole::Journal => &mut self.journal,
        }
    }

    /// For people.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} (pid {})", self.comm.to_lossy(), self.pid)
    }
}

impl Holding {
    /// Finds the holders of a file and its side files. `database` is the absolute path without
    /// links. With `mappings` it also finds processes that can write only through a mapping.
    pub fn find_holders(probe: &Probe, database: &Path, mappings: bool) -> Result<Self, Error> {
        let sought: Vec<SoughtFile> = HolderRole::ALL
            .iter()
            .map(|role| sought(&role.path(database)))
            .collect();
        let mut found = probe.holders(&sought, mappings)?;
        let locks = probe.locks();
        forget_recycled(&mut found.held);
        let mut gaps = found.gaps.clone();
        if locks.is_err() {
            gaps.push(Gap::new(
                "lock holders",
                "cannot read /proc/locks",
                "run outside the container or as root, where all of /proc is visible",
            ));
        }
        let mut holding = Self {
            is_complete: gaps.is_empty(),
            has_locks: locks.is_ok(),
            processes: processes(&found),
            gaps,
        };
        let locks = locks.unwrap_or_default();
        holding.add_lockers(probe, &sought, &locks);
        for process in &mut holding.processes {
            process.count();
            process.locks = locks_of(process.pid, &sought, &locks);
        }
        Ok(holding)
    }

    /// Lock holders are readable by everyone, even those whose descriptor tables are not.
    fn add_lockers(&mut self, probe: &Probe, sought: &[SoughtFile], locks: &[HeldLock]) {
        let own = std::process::id();
        // Journals are never locked: a lock on its inode number is on another file that reused it.
        let lasting = sought
            .get(..HolderRole::Journal as usize)
            .unwrap_or_default();
        for lock in locks
            .iter()
            .filter(|lock| !lock.waits && is_on(lock, lasting))
        {
            let Some(pid) = lock.pid.filter(|pid| *pid != own) else {
                continue;
            };
            let is_known = self.processes.iter().any(|process| process.pid == pid);
            if let Some(identity) = probe.name_of(pid).filter(|_| !is_known) {
                self.processes.push(HoldingProcess::new(pid, identity));
            }
        }
        self.processes.sort_by_key(|process| process.pid);
    }

    /// The processes that hold any of the files, except deleted ones.
    pub fn holders(&self) -> impl Iterator<Item = &HoldingProcess> {
        let holds = |process: &&HoldingProcess| {
            HolderRole::ALL.iter().any(|role| {
                let grip = process.grip(*role);
                !grip.fds.is_empty() || grip.mapped || !grip.rings.is_empty()
            }) || process.locks.any
        };
        self.processes.iter().filter(holds)
    }

    /// The processes that can write the file itself.
    pub fn writers(&self) -> impl Iterator<Item = &HoldingProcess> {
        self.processes
            .iter()
            .filter(|process| process.main.writes())
    }
}

fn sought(path: &Path) -> SoughtFile {
    use std::os::unix::fs::MetadataExt as _;
    let meta = path.metadata().ok();
    SoughtFile {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        id: meta.map(|meta| (meta.dev(), meta.ino())),
    }
}

/// A journal is short-lived, and the next new file can get its inode number. A process that was
/// found only by the number counts if it also holds the database: no process writes a journal
/// without it.
fn forget_recycled(held: &mut Vec<FileHold>) {
    let role = |held: &FileHold| HolderRole::of(held.which);
    let owners: BTreeSet<u32> = held
        .iter()
        .filter(|held| role(held) == HolderRole::Main)
        .map(|held| held.pid)
        .collect();
    held.retain(|held| {
        role(held) != HolderRole::Journal || held.named || owners.contains(&held.pid)
    });
}

fn processes(found: &FileHolders) -> Vec<HoldingProcess> {
    let mut list: Vec<HoldingProcess> = Vec::new();
    for held in &found.held {
        if list.last().is_none_or(|last| last.pid != held.pid) {
            let identity = (held.comm.clone(), held.start_ticks);
            list.push(HoldingProcess {
                ppid: Some(held.ppid),
                ..HoldingProcess::new(held.pid, identity)
            });
        }
        if let Some(process) = list.last_mut() {
            process.grip_mut(HolderRole::of(held.which)).add(held);
        }
    }
    list
}

impl HoldingProcess {
    fn new(pid: u32, (comm, start_ticks): (Text, u64)) -> Self {
        Self {
            pid,
            ppid: None,
            start_ticks,
            comm,
            main: Grip::default(),
            wal: Grip::default(),
            shm: Grip::default(),
            journal: Grip::default(),
            connections: 0,
            parked: 0,
            locks: HolderLocks::default(),
        }
    }

    fn count(&mut self) {
        self.connections = self.wal.fds.len() + self.wal.gone.len();
        if self.connections > 0 {
            let of_database = self.main.fds.len() + self.main.gone.len();
            self.parked = of_database.saturating_sub(self.connections);
        }
    }
}

/// Whether a lock is on one of these files: also by device, because an inode number alone may be
/// another file's.
fn is_on(lock: &HeldLock, sought: &[SoughtFile]) -> bool {
    let device = |dev: u64| (rustix::fs::major(dev), rustix::fs::minor(dev));
    let is_this = |(dev, ino): (u64, u64)| ino == lock.ino && device(dev) == lock.device;
    sought.iter().any(|sought| sought.id.is_some_and(is_this))
}

fn locks_of(pid: u32, sought: &[SoughtFile], locks: &[HeldLock]) -> HolderLocks {
    // `stat` may report another device than the list of locks: inode and process are enough.
    let on = |role: HolderRole| {
        let ino = sought
            .get(role as usize)
            .and_then(|sought| sought.id)
            .map(|(_, ino)| ino);
        locks
            .iter()
            .filter(move |lock| !lock.waits && lock.pid == Some(pid) && Some(lock.ino) == ino)
    };
    let byte = |at: u64| on(HolderRole::Shm).any(|lock| lock.covers(at, at));
    HolderLocks {
        shared: on(HolderRole::Main).any(|lock| lock.covers(judge::SHARED.0, judge::SHARED.1)),
        any: on(HolderRole::Main).next().is_some(),
        everybody: byte(crate::sqlite::shm::EVERYBODY),
        writing: byte(crate::sqlite::shm::WRITER),
        reading: (0..5u8)
            .filter(|kind| byte(crate::sqlite::shm::READERS.start() + u64::from(*kind)))
            .collect(),
    }
}
