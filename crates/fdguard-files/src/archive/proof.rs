//! Checks whether a file has writers or is locked.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use fdguard_core::Gap;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::holders;
use super::receipt::{ArchiveReceipt, UnusedProof};
use crate::lease::{HeldLease, LeaseAnswer};
use crate::read::Stamp;
use crate::sys;

/// A search of all processes takes milliseconds, so it is not repeated for every check.
const BETWEEN_WALKS: Duration = Duration::from_millis(200);

/// Proof that the file has no writer, while it is valid.
#[derive(Debug)]
pub(super) enum Free {
    /// The kernel granted a lease.
    Leased(HeldLease),
    /// No holder was found, and the file was in this state.
    Walked(Stamp),
}

impl Free {
    /// Whether no writer has appeared since.
    pub(super) fn holds(&self, file: &File) -> bool {
        match self {
            Self::Leased(kept) => kept.is_whole(),
            Self::Walked(stamp) => Stamp::read(file).is_ok_and(|now| now == *stamp),
        }
    }

    pub(super) fn proof(&self) -> UnusedProof {
        match self {
            Self::Leased(_) => UnusedProof::Lease,
            Self::Walked(_) => UnusedProof::Scan,
        }
    }
}

/// The result of a check.
#[derive(Debug)]
pub(super) enum LeaseCheck {
    /// There is no writer.
    Free(Free),
    /// A process can write, or it is too early to know.
    NotYet,
    /// Some processes cannot be examined, and the kernel grants no lease.
    Unproven,
}

/// The file in question.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) file: &'a File,
    /// Where it is now.
    pub(super) path: &'a Path,
    /// Whether a search that could not examine every process is enough.
    pub(super) trust_scan: bool,
    /// Whether this is the last attempt.
    pub(super) is_last: bool,
}

/// Repeats the check.
#[derive(Debug, Default)]
pub(super) struct Asking {
    walked: Option<Instant>,
}

impl Asking {
    /// Checks once. What a search could not examine is put into the receipt.
    pub(super) fn ask(
        &mut self,
        question: &Question<'_>,
        receipt: &mut ArchiveReceipt,
    ) -> io::Result<LeaseCheck> {
        let file = question.file;
        match HeldLease::acquire(file.try_clone()?) {
            Ok(kept) => Ok(LeaseCheck::Free(Free::Leased(kept))),
            Err(LeaseAnswer::Writer) => Ok(LeaseCheck::NotYet),
            Err(answer) => self.walk(question, answer, receipt),
        }
    }

    fn walk(
        &mut self,
        question: &Question<'_>,
        answer: LeaseAnswer,
        receipt: &mut ArchiveReceipt,
    ) -> io::Result<LeaseCheck> {
        let recently = |last: Instant| last.elapsed() < BETWEEN_WALKS;
        if self.walked.is_some_and(recently) && !question.is_last {
            return Ok(LeaseCheck::NotYet);
        }
        let before = Stamp::read(question.file)?;
        let found = holders::find(question.path, question.file);
        self.walked = Some(Instant::now());
        if !found.writers.is_empty() || Stamp::read(question.file)? != before {
            return Ok(LeaseCheck::NotYet);
        }
        let is_complete = found.gaps.is_empty();
        receipt.gaps = found.gaps;
        receipt.gaps.push(no_lease(answer));
        if is_complete || question.trust_scan {
            Ok(LeaseCheck::Free(Free::Walked(before)))
        } else {
            Ok(LeaseCheck::Unproven)
        }
    }
}

fn no_lease(answer: LeaseAnswer) -> Gap {
    let what = "writers that are in no descriptor table: a descriptor in transit through a socket, an io_uring, a process outside this container, another machine";
    match answer {
        LeaseAnswer::Denied => Gap::new(
            what,
            "the file belongs to another user, and the kernel grants leases only to the owner and root",
            "run as the owner of the file or with CAP_LEASE",
        ),
        _ => Gap::new(
            what,
            "this file system does not support leases",
            "keep logs on a local file system (ext4, xfs, btrfs, tmpfs)",
        ),
    }
}

/// Whether any process holds a lock of any kind on a file.
///
/// Range locks are tested without taking them. A whole-file lock (`flock`) cannot be tested: it is
/// taken for an instant.
pub(super) fn is_locked(file: &File) -> bool {
    if sys::is_locked(file) {
        return true;
    }
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // Closing the file releases it at the latest.
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
            false
        }
        Err(error) => error == Errno::WOULDBLOCK,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use rustix::fs::FlockOperation;

    use super::is_locked;

    #[test]
    fn locks_of_all_kinds_are_seen_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let file = File::open(&path).unwrap();
        let other = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        assert!(!is_locked(&file));
        rustix::fs::flock(&other, FlockOperation::LockShared).unwrap();
        assert!(is_locked(&file));
        rustix::fs::flock(&other, FlockOperation::Unlock).unwrap();
        assert!(!is_locked(&file));
        crate::sys::lock(&other).unwrap();
        assert!(is_locked(&file) && is_locked(&file));
        crate::sys::unlock(&other).unwrap();
        assert!(!is_locked(&file));
    }
}
