//! How the work on a file ends: archived, archived by another process, or left in place with a
//! reason.

use std::ffi::OsStr;

use rustix::io::Errno;

use super::super::argument::text;
use super::super::digest::{self, Contents};
use super::super::receipt::{
    ArchiveMethod, ArchiveOutcome, ArchiveProblem, ArchiveReceipt, ArchiveTrouble,
};
use super::super::transfer::PlacedCopy;
use super::super::{holders, names};
use super::{Job, Progress, Wait};
use crate::dir::Dir;
use crate::{LockFile, lock};

impl Job<'_> {
    pub(super) fn placed(&mut self, placed: PlacedCopy) {
        let receipt = &mut self.receipt;
        receipt.outcome = ArchiveOutcome::Archived;
        receipt.archived_to = Some(text(&self.common.to.path().join(&placed.name)));
        receipt.method = Some(placed.method);
        receipt.notes.extend(placed.notes);
        contained(receipt, placed.contents);
        if self.receipt.recovered {
            sweep(self.common.to, &self.named.name);
        }
    }

    /// The file is missing: another archive moved it, or the name is wrong.
    pub(super) fn gone(&mut self) -> Result<Progress, ArchiveProblem> {
        let to = self.common.to;
        let name = &self.named.name;
        let there = to.read(name).ok();
        if there.is_none() && !self.was_busy {
            let message = if self.named.was_there {
                "disappeared before it could be archived"
            } else {
                "no such file"
            };
            return Err(ArchiveProblem::new(
                ArchiveTrouble::NotFound,
                message,
                "name an existing file",
            ));
        }
        if self.lock.is_none() {
            sweep(&self.named.directory, name);
        }
        sweep(to, name);
        let receipt = &mut self.receipt;
        receipt.outcome = ArchiveOutcome::AlreadyArchived;
        if let Some(file) = there {
            receipt.archived_to = Some(text(&to.path().join(name)));
            receipt.method = Some(ArchiveMethod::Found);
            if let Ok(contents) = digest::read_contents(&file, names::has_json_lines(name)) {
                contained(receipt, contents);
            }
        } else {
            receipt.note("another archive moved it to a different directory");
        }
        Ok(Progress::Done)
    }

    /// Why it is not archived at the deadline.
    pub(super) fn too_late(&mut self, wait: &Wait) -> ArchiveProblem {
        if let Wait::Busy(path) = wait {
            return ArchiveProblem::new(
                ArchiveTrouble::BeingArchived,
                format!("being archived by {}", lock::holder(path)),
                "wait for it to finish, or try again",
            );
        }
        if matches!(wait, Wait::Replaced) {
            return ArchiveProblem::new(
                ArchiveTrouble::Io,
                "repeatedly replaced by another file",
                "find the process that renames it, then try again",
            );
        }
        let path = self.named.directory.path().join(&self.closing);
        let found = self
            .held
            .as_ref()
            .map(|held| holders::find(&path, &held.file))
            .unwrap_or_default();
        self.receipt.gaps.extend(found.gaps);
        if matches!(wait, Wait::Locked) {
            let who = match &found.lockers[..] {
                [] => "a process that cannot be examined".to_owned(),
                lockers => holders::names(lockers),
            };
            holders::at_deadline(&mut self.receipt.locks, found.lockers);
            return ArchiveProblem::new(
                ArchiveTrouble::Locked,
                format!("locked by {who}"),
                "stop that process or have it release the lock",
            );
        }
        let who = match &found.writers[..] {
            [] => "a writer that is in no descriptor table (a descriptor in transit through a socket, an io_uring, or a thread with a private table)".to_owned(),
            writers => holders::names(writers),
        };
        holders::at_deadline(&mut self.receipt.writers, found.writers);
        ArchiveProblem::new(
            ArchiveTrouble::StillWritten,
            format!("still open for writing by {who}"),
            "stop the writers (SIGTERM lets them flush) or wait longer with --wait",
        )
    }

    /// Restores the name of the file and records the reason.
    pub(super) fn fail(&mut self, problem: ArchiveProblem) {
        let directory = &self.named.directory;
        let mut name = &self.named.name;
        let is_closing = self.held.as_ref().is_some_and(|held| held.is_closing);
        if is_closing && let Err(error) = directory.rename(&self.closing, directory, name) {
            name = &self.closing;
            self.receipt.note(match error {
                Errno::EXIST => {
                    "a new file took its name meanwhile: the next archive moves both".to_owned()
                }
                other => format!("cannot restore its name: {other}"),
            });
        }
        self.receipt.outcome = problem.outcome();
        if directory
            .stat_entry(name)
            .is_ok_and(|entry| entry.is_some())
        {
            self.receipt.kept_at = Some(text(&directory.path().join(name)));
        }
        self.receipt.error = Some(problem);
    }
}

/// Removes the lock file left by a killed archive. A lock that is held stays.
fn sweep(directory: &Dir, name: &OsStr) {
    let lock = names::lock(name);
    if directory
        .stat_entry(&lock)
        .is_ok_and(|entry| entry.is_some())
    {
        drop(LockFile::attempt_in(directory, &lock));
    }
}

fn contained(receipt: &mut ArchiveReceipt, contents: Contents) {
    receipt.lines = Some(contents.lines);
    receipt.bytes = Some(contents.bytes);
    receipt.sha256 = Some(contents.sha256);
    receipt.tail = Some(contents.tail);
}
