//! What is wrong with how a database is held. Pure.

use fdguard_core::lint::Severity;

use super::{HolderRole, Holding, HoldingProcess};
use crate::finding::FileFinding;
use crate::sqlite::Shm;

/// The bytes of a database that every connection with a write-ahead log keeps locked for reading.
pub const SHARED: (u64, u64) = (1_073_741_826, 1_073_742_335);
/// With so many frames a log that cannot begin again is a problem: SQLite would move it at a thousand.
const LONG_LOG: u32 = 4000;

/// Everything that is wrong. `shm` is the index as it was read, for what readers hold back.
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

/// Files that were deleted or replaced under a process that goes on with them.
fn gone(process: &HoldingProcess) -> Option<FileFinding> {
    let roles = [
        (HolderRole::Main, "database"),
        (HolderRole::Wal, "log"),
        (HolderRole::Shm, "index"),
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
        "{} goes on with a {files} that was deleted or replaced: what it writes is going nowhere; stop it now",
        process.name()
    );
    Some(FileFinding::critical("deleted-file", None, text).about(vec![process.pid]))
}

/// The holder that a process has its descriptors from: forked, they have the same numbers. Locks are not handed down.
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
        "{} was forked by {} and has its connections without its locks: harmless until it uses one of them",
        process.name(),
        parent.name()
    );
    FileFinding::info("inherited", None, text).about(vec![process.pid])
}

/// A live connection whose locks are gone: somebody in that process opened and closed the file besides SQLite.
fn lost_locks(process: &HoldingProcess) -> Option<FileFinding> {
    let is_live = !process.wal.fds.is_empty() && !process.main.fds.is_empty();
    let no_shared = is_live && !process.locks.shared;
    let no_everybody = !process.shm.fds.is_empty() && !process.locks.everybody;
    if !no_shared && !no_everybody {
        return None;
    }
    let which = match (no_shared, no_everybody) {
        (true, true) => "its locks on the database and its index",
        (true, false) => "its lock on the database",
        _ => "its lock on the index",
    };
    let text = format!(
        "{} has a live connection but has lost {which}: something in it opened and closed the file beside SQLite; the next one who closes the database \
         removes its log, and what it writes then is lost",
        process.name()
    );
    Some(FileFinding::critical("lost-locks", None, text).about(vec![process.pid]))
}

/// A reader that keeps the log from beginning again.
fn pins(process: &HoldingProcess, shm: &Shm) -> Option<FileFinding> {
    // Kind 0 reads the database alone.
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
        "{} reads the database as of frame {oldest} of {} in the log: until its transaction ends the log cannot begin again and grows",
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
        let what = if parked == 1 { "1 descriptor".to_owned() } else { format!("{parked} descriptors") };
        let text = format!(
            "{} keeps {what} of the database without a connection: SQLite parks them, they are no leak",
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
            "{} processes can write it: {}",
            writers.len(),
            names.join(", ")
        );
        FileFinding::info("several-writers", None, text)
            .about(writers.iter().map(|process| process.pid).collect())
    })
}
