//! Judges how a database is held by processes. Pure.

use fdguard_core::lint::Severity;
use fdguard_core::units::counted;

use super::{HolderRole, Holding, HoldingProcess};
use crate::finding::FileFinding;
use crate::sqlite::Shm;

/// The bytes of a database that every connection with a write-ahead log keeps locked for reading.
pub const SHARED: (u64, u64) = (1_073_741_826, 1_073_742_335);
/// Frames above which a WAL that cannot restart is a problem: SQLite checkpoints at a thousand.
const LONG_LOG: u32 = 4000;

/// All problems. `shm` is the index as read, to find readers that hold the log back.
#[must_use]
pub fn judge(holding: &Holding, shm: Option<&Shm>) -> Vec<FileFinding> {
    let mut found = Vec::new();
    for process in &holding.processes {
        found.extend(gone(process));
        if let Some(parent) = parent_of(process, holding) {
            found.push(inherited(process, parent));
            continue;
        }
        if holding.has_locks {
            found.extend(lost_locks(process));
        }
        found.extend(shm.and_then(|shm| pins(process, shm)));
        found.extend(parked(process));
    }
    found.extend(several_writers(holding));
    found.sort_by_key(|one| std::cmp::Reverse(one.severity));
    found
}

/// Files that were deleted or replaced while a process keeps using them.
fn gone(process: &HoldingProcess) -> Option<FileFinding> {
    let roles = [
        (HolderRole::Main, "database"),
        (HolderRole::Wal, "WAL"),
        (HolderRole::Shm, "WAL index"),
    ];
    let lost: Vec<&str> = roles
        .iter()
        .filter(|(role, _)| !process.grip(*role).gone.is_empty())
        .map(|(_, name)| *name)
        .collect();
    if lost.is_empty() {
        return None;
    }
    let files = lost.join(" and ");
    let text = format!(
        "{} still uses a {files} that was deleted or replaced: everything it writes is lost; stop it now",
        process.name()
    );
    Some(FileFinding::critical("deleted-file", None, text).about(vec![process.pid]))
}

/// The holder from which a process inherited its descriptors: after a fork they have the same
/// numbers. Locks are not inherited.
fn parent_of<'a>(process: &HoldingProcess, holding: &'a Holding) -> Option<&'a HoldingProcess> {
    let parent = holding
        .processes
        .iter()
        .find(|other| Some(other.pid) == process.ppid)?;
    let has_same = |role: HolderRole| {
        let (ours, theirs) = (&process.grip(role).fds, &parent.grip(role).fds);
        ours.iter().all(|fd| theirs.contains(fd))
    };
    let is_all =
        has_same(HolderRole::Main) && has_same(HolderRole::Wal) && has_same(HolderRole::Shm);
    (is_all && !process.locks.any && !process.locks.everybody && !process.wal.fds.is_empty())
        .then_some(parent)
}

fn inherited(process: &HoldingProcess, parent: &HoldingProcess) -> FileFinding {
    let text = format!(
        "{} was forked by {} and inherited its connections without the locks: harmless until it uses one of them",
        process.name(),
        parent.name()
    );
    FileFinding::info("inherited", None, text).about(vec![process.pid])
}

/// A live connection whose locks are gone: code in that process opened and closed the file outside
/// SQLite.
fn lost_locks(process: &HoldingProcess) -> Option<FileFinding> {
    let is_live = !process.wal.fds.is_empty() && !process.main.fds.is_empty();
    let no_shared = is_live && !process.locks.shared;
    let no_everybody = !process.shm.fds.is_empty() && !process.locks.everybody;
    if !no_shared && !no_everybody {
        return None;
    }
    let which = match (no_shared, no_everybody) {
        (true, true) => "its locks on the database and the WAL index",
        (true, false) => "its lock on the database",
        _ => "its lock on the WAL index",
    };
    let text = format!(
        "{} has a live connection but lost {which}: code in the process opened and closed the file outside SQLite. When another process closes the database, \
         SQLite removes the WAL, and later writes are lost",
        process.name()
    );
    Some(FileFinding::critical("lost-locks", None, text).about(vec![process.pid]))
}

/// A reader that prevents the log from restarting.
fn pins(process: &HoldingProcess, shm: &Shm) -> Option<FileFinding> {
    // Kind 0 reads only the database.
    let marks = process.locks.reading.iter().filter(|kind| **kind > 0);
    let oldest = marks
        .filter_map(|kind| shm.marks.get(usize::from(*kind)).copied().flatten())
        .min()?;
    if !shm.is_settled || oldest >= shm.frames {
        return None;
    }
    let severity = if shm.frames > LONG_LOG {
        Severity::Warning
    } else {
        Severity::Info
    };
    let text = format!(
        "{} reads a snapshot at WAL frame {oldest} of {}: the WAL cannot restart and grows until this transaction ends",
        process.name(),
        shm.frames
    );
    let finding = FileFinding::info("reader-pins-log", None, text).about(vec![process.pid]);
    Some(FileFinding {
        severity,
        ..finding
    })
}

fn parked(process: &HoldingProcess) -> Option<FileFinding> {
    let parked = process.parked;
    (parked > 0).then(|| {
        let what = counted(parked, "descriptor");
        let text = format!(
            "{} keeps {what} of the database without a connection: parked by SQLite, not a leak",
            process.name()
        );
        FileFinding::info("parked", None, text).about(vec![process.pid])
    })
}

fn several_writers(holding: &Holding) -> Option<FileFinding> {
    let writers: Vec<&HoldingProcess> = holding.writers().collect();
    (writers.len() > 1).then(|| {
        let names: Vec<String> = writers
            .iter()
            .take(8)
            .map(|process| process.name())
            .collect();
        let text = format!(
            "{} processes have it open for writing: {}",
            writers.len(),
            names.join(", ")
        );
        FileFinding::info("several-writers", None, text)
            .about(writers.iter().map(|process| process.pid).collect())
    })
}
