//! Whether anybody can write a file, or has a lock on it.

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

/// A walk over all processes costs milliseconds: it is not done at each look.
const BETWEEN_WALKS: Duration = Duration::from_millis(200);

/// It is known that nobody writes, as long as this holds.
#[derive(Debug)]
pub(super) enum Free {
    /// The kernel has given a lease.
    Leased(HeldLease),
    /// Nobody was found, and the file was like this.
    Walked(Stamp),
}

impl Free {
    /// Whether nobody has come since.
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

/// What came of asking.
#[derive(Debug)]
pub(super) enum LeaseRequest {
    /// Nobody writes.
    Free(Free),
    /// Somebody can, or it is too early to say.
    NotYet,
    /// Not all processes may be looked at, and the kernel does not say.
    Unproven,
}

/// What is asked about.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) file: &'a File,
    /// Where it is now.
    pub(super) path: &'a Path,
    /// Whether a walk that could not see every process is enough.
    pub(super) trust_scan: bool,
    /// Whether nobody will ask again.
    pub(super) is_last: bool,
}

/// Asks again and again.
#[derive(Debug, Default)]
pub(super) struct Asking {
    walked: Option<Instant>,
}

impl Asking {
    /// Asks once. What a walk could not see is put into the receipt.
    pub(super) fn ask(
        &mut self,
        question: &Question<'_>,
        receipt: &mut ArchiveReceipt,
    ) -> io::Result<LeaseRequest> {
        let file = question.file;
        match HeldLease::acquire(file.try_clone()?) {
            Ok(kept) => Ok(LeaseRequest::Free(Free::Leased(kept))),
            Err(LeaseAnswer::Writer) => Ok(LeaseRequest::NotYet),
            Err(answer) => self.walk(question, answer, receipt),
        }
    }

    fn walk(
        &mut self,
        question: &Question<'_>,
        answer: LeaseAnswer,
        receipt: &mut ArchiveReceipt,
    ) -> io::Result<LeaseRequest> {
        let recently = |last: Instant| last.elapsed() < BETWEEN_WALKS;
        if self.walked.is_some_and(recently) && !question.is_last {
            return Ok(LeaseRequest::NotYet);
        }
        let before = Stamp::read(question.file)?;
        let found = holders::find(question.path, question.file);
        self.walked = Some(Instant::now());
        if !found.writers.is_empty() || Stamp::read(question.file)? != before {
            return Ok(LeaseRequest::NotYet);
        }
        let is_complete = found.gaps.is_empty();
        receipt.gaps = found.gaps;
        receipt.gaps.push(no_lease(answer));
        if is_complete || question.trust_scan {
            Ok(LeaseRequest::Free(Free::Walked(before)))
        } else {
            Ok(LeaseRequest::Unproven)
        }
    }
}

fn no_lease(answer: LeaseAnswer) -> Gap {
    let what = "writers that no table shows: a descriptor on its way through a socket, a file in an io_uring, a process outside of this container, another machine";
    match answer {
        LeaseAnswer::Denied => Gap::new(
            what,
            "the file is another user's, and the kernel gives leases to its owner and root alone",
            "run as the owner of the file, or with CAP_LEASE",
        ),
        _ => Gap::new(
            what,
            "this file system gives no leases",
            "keep logs on a local file system (ext4, xfs, btrfs, tmpfs)",
        ),
    }
}

/// Whether anybody has a lock of any kind on a file.
///
/// Locks of ranges are asked for without being taken. A lock of the whole file (`flock`) cannot be: it is taken for an instant.
pub(super) fn is_locked(file: &File) -> bool {
    if sys::is_locked(file) {
        return true;
    }
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // It goes with the file at the latest.
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
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
