//! How the work on a file ends: archived, archived by another, or left where it was, and then why.

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

    /// It is not there. Who was here first has brought it to the archive, or it is a mistake.
    pub(super) fn gone(&mut self) -> Result<Progress, ArchiveProblem> {
        let to = self.common.to;
        let name = &self.named.name;
        let there = to.read(name).ok();
        if there.is_none() && !self.was_busy {
            let message = if self.named.was_there {
                "it vanished before it could be archived"
            } else {
                "there is no such file"
            };
            return Err(ArchiveProblem::new(
                ArchiveTrouble::NotFound,
                message,
                "name a file that is there",
            ));
        }
        if self.lock.is_none() {
            sweep(&self.named.folder, name);
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
            receipt.note("another archive took it to a folder that is not this one");
        }
        Ok(Progress::Done)
    }

    /// Why it is not archived at the deadline.
    pub(super) fn too_late(&mut self, wait: &Wait) -> ArchiveProblem {
        if let Wait::Busy(path) = wait {
            return ArchiveProblem::new(
                ArchiveTrouble::BeingArchived,
                format!("it is being archived by {}", lock::holder(path)),
                "wait for it, or try again",
            );
        }
        if matches!(wait, Wait::Replaced) {
            return ArchiveProblem::new(
                ArchiveTrouble::Io,
                "another file is put in its place again and again",
                "see who renames it, and try again",
            );
        }
        let path = self.named.folder.path().join(&self.closing);
        let found = self
            .held
            .as_ref()
            .map(|held| holders::find(&path, &held.file))
            .unwrap_or_default();
        self.receipt.gaps.extend(found.gaps);
        if matches!(wait, Wait::Locked) {
            let who = match &found.lockers[..] {
                [] => "a process that may not be seen".to_owned(),
                lockers => holders::names(lockers),
            };
            holders::at_deadline(&mut self.receipt.locks, found.lockers);
            return ArchiveProblem::new(
                ArchiveTrouble::Locked,
                format!("it is locked by {who}"),
                "end that process, or let it give the lock back",
            );
        }
        let who = match &found.writers[..] {
            [] => "somebody that no table shows (a descriptor on its way through a socket, an io_uring, a thread with a table of its own)".to_owned(),
            writers => holders::names(writers),
        };
        holders::at_deadline(&mut self.receipt.writers, found.writers);
        ArchiveProblem::new(
            ArchiveTrouble::StillWritten,
            format!("it can still be written by {who}"),
            "end the writers (TERM lets them flush), or wait longer with --wait",
        )
    }

    /// Gives the file its own name back and says why.
    pub(super) fn fail(&mut self, problem: ArchiveProblem) {
        let folder = &self.named.folder;
        let mut name = &self.named.name;
        let is_closing = self.held.as_ref().is_some_and(|held| held.is_closing);
        if is_closing && let Err(error) = folder.rename(&self.closing, folder, name) {
            name = &self.closing;
            self.receipt.note(match error {
                Errno::EXIST => "its name was taken meanwhile: it waits under this one, and the next archive takes both".to_owned(),
                other => format!("it could not be given its name back: {other}"),
            });
        }
        self.receipt.outcome = problem.outcome();
        if folder.stat_entry(name).is_ok_and(|entry| entry.is_some()) {
            self.receipt.kept_at = Some(text(&folder.path().join(name)));
        }
        self.receipt.error = Some(problem);
    }
}

/// Removes the lock file that an archive which was killed has left. One that is held stays.
fn sweep(folder: &Dir, name: &OsStr) {
    let lock = names::lock(name);
    if folder.stat_entry(&lock).is_ok_and(|entry| entry.is_some()) {
        drop(LockFile::attempt_in(folder, &lock));
    }
}

fn contained(receipt: &mut ArchiveReceipt, contents: Contents) {
    receipt.lines = Some(contents.lines);
    receipt.bytes = Some(contents.bytes);
    receipt.sha256 = Some(contents.sha256);
    receipt.tail = Some(contents.tail);
}
