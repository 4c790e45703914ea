//! Moves a file without writers into the archive: by a rename, or by a copy that is compared before
//! the original is removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::copy;
use super::digest::{self, Contents};
use super::names;
use super::proof::Free;
use super::receipt::{ArchiveMethod, ArchiveProblem, ArchiveTrouble};
use super::step::ArchiveStep;
use crate::LockFile;
use crate::dir::Dir;

/// The most names that are tried for one file.
const MOST_NAMES: u32 = 100_000;
/// Some file systems store times in units of two seconds.
const SAME_TIME: i64 = 2;

/// One file that is being moved.
pub(super) struct Transfer<'a> {
    /// Where it is.
    pub(super) from: &'a Dir,
    /// Its name there during the archive.
    pub(super) closing: &'a OsStr,
    /// Its own name.
    pub(super) name: &'a OsStr,
    /// The file.
    pub(super) file: &'a File,
    /// Device and inode.
    pub(super) id: (u64, u64),
    /// Proof that there is no writer.
    pub(super) free: &'a Free,
    /// The archive.
    pub(super) to: &'a Dir,
    /// Whether another name may be used if its own exists.
    pub(super) may_number: bool,
    /// Whether this continues an interrupted archive.
    pub(super) recovered: bool,
    /// Called after each step.
    pub(super) passed: &'a mut dyn FnMut(ArchiveStep),
}

/// The result.
#[derive(Debug)]
pub(super) enum TransferResult {
    /// It is in the archive.
    Done(PlacedCopy),
    /// A writer appeared: everything was restored.
    Disturbed,
    /// Another archive is moving a file of this name to the same place.
    Busy,
}

/// Where it is, and what is in it.
#[derive(Debug)]
pub(super) struct PlacedCopy {
    pub(super) name: OsString,
    pub(super) contents: Contents,
    pub(super) method: ArchiveMethod,
    pub(super) notes: Vec<String>,
}

impl Transfer<'_> {
    /// Runs the transfer. If it fails, the file is still in its place.
    pub(super) fn run(mut self) -> Result<TransferResult, ArchiveProblem> {
        if self.recovered
            && let Some(moved) = self.finish_earlier()?
        {
            return Ok(moved);
        }
        let is_taken = || {
            self.to
                .stat_entry(self.name)
                .is_ok_and(|entry| entry.is_some())
        };
        if !self.may_number && is_taken() {
            return Err(collision());
        }
        if self.id.0 == self.to.id().0
            && let Some(moved) = self.rename()?
        {
            return Ok(moved);
        }
        self.copy()
    }

    fn read(&self) -> Result<Contents, ArchiveProblem> {
        digest::read_contents(self.file, names::has_json_lines(self.name))
            .map_err(|error| ArchiveProblem::io("cannot read the file", error))
    }

    /// By renaming; `None` if the archive is on another file system.
    fn rename(&mut self) -> Result<Option<TransferResult>, ArchiveProblem> {
        let contents = self.read()?;
        (self.passed)(ArchiveStep::Read);
        rustix::fs::fdatasync(self.file)
            .map_err(|error| ArchiveProblem::io("cannot sync the file", error))?;
        (self.passed)(ArchiveStep::Synced);
        if !self.free.holds(self.file) {
            return Ok(Some(TransferResult::Disturbed));
        }
        let Some(name) = self.place(self.from, self.closing)? else {
            return Ok(None);
        };
        (self.passed)(ArchiveStep::Moved);
        let is_ours = self.is_ours(self.to, &name);
        if !(is_ours && self.free.holds(self.file)) {
            let undone = self.to.rename(&name, self.from, self.closing);
            undone.map_err(|error| {
                ArchiveProblem::io(
                    "a writer opened it in the archive, and moving it back failed",
                    error,
                )
            })?;
            return Ok(Some(TransferResult::Disturbed));
        }
        sync(self.to)?;
        (self.passed)(ArchiveStep::Recorded);
        sync(self.from)?;
        (self.passed)(ArchiveStep::Settled);
        Ok(Some(TransferResult::Done(PlacedCopy {
            name,
            contents,
            method: ArchiveMethod::Rename,
            notes: Vec::new(),
        })))
    }

    /// Gives a file the first free name in the archive; `None` if it is on another file system.
    fn place(&self, directory: &Dir, from: &OsStr) -> Result<Option<OsString>, ArchiveProblem> {
        for number in 0..MOST_NAMES {
            let name = names::numbered(self.name, number);
            match directory.rename(from, self.to, &name) {
                Ok(()) => return Ok(Some(name)),
                Err(Errno::EXIST) if self.may_number => {}
                Err(Errno::EXIST) => break,
                Err(Errno::XDEV) => return Ok(None),
                Err(error) => {
                    return Err(ArchiveProblem::io("cannot move it into the archive", error));
                }
            }
        }
        Err(collision())
    }

    fn is_ours(&self, directory: &Dir, name: &OsStr) -> bool {
        let entry = directory.stat_entry(name).ok().flatten();
        entry.is_some_and(|entry| entry.id == self.id)
    }

    /// By a copy.
    fn copy(&mut self) -> Result<TransferResult, ArchiveProblem> {
        let lock = LockFile::attempt_in(self.to, &names::lock(self.name));
        let lock = lock.map_err(|error| archive_error(&error))?;
        let Some(_lock) = lock else {
            return Ok(TransferResult::Busy);
        };
        let (part, copy) = copy::create(self.to, self.name, self.file)
            .map_err(|error| ArchiveProblem::io("cannot create a copy in the archive", error))?;
        (self.passed)(ArchiveStep::Begun);
        let moved = self.fill_and_place(&part, &copy);
        if !matches!(moved, Ok(TransferResult::Done(_))) {
            // It has its name in the archive, or was never complete.
            let _ = self.to.remove(&part);
        }
        moved
    }

    fn fill_and_place(
        &mut self,
        part: &OsStr,
        copy: &File,
    ) -> Result<TransferResult, ArchiveProblem> {
        let mut notes = Vec::new();
        let contents = copy::fill(
            self.file,
            copy,
            names::has_json_lines(self.name),
            &mut notes,
        )?;
        (self.passed)(ArchiveStep::Copied);
        if !self.free.holds(self.file) {
            return Ok(TransferResult::Disturbed);
        }
        let Some(name) = self.place(self.to, part)? else {
            return Err(ArchiveProblem::io(
                "the archive spans two file systems",
                Errno::XDEV,
            ));
        };
        (self.passed)(ArchiveStep::Moved);
        let removed = sync(self.to).and_then(|()| {
            (self.passed)(ArchiveStep::Recorded);
            self.remove_original()
        });
        match removed {
            Ok(true) => {
                if !self.free.holds(self.file) {
                    notes.push("a process opened it for writing at the moment it was removed: what that process writes goes to a deleted file".to_owned());
                }
                sync(self.from)?;
                (self.passed)(ArchiveStep::Settled);
                Ok(TransferResult::Done(PlacedCopy {
                    name,
                    contents,
                    method: ArchiveMethod::Copy,
                    notes,
                }))
            }
            other => {
                // Every line is in the original; duplicates would be wrong, too.
                let _ = self.to.remove(&name);
                other.map(|_| TransferResult::Disturbed)
            }
        }
    }

    /// Removes the original if no writer has appeared; otherwise it stays.
    fn remove_original(&mut self) -> Result<bool, ArchiveProblem> {
        if !(self.free.holds(self.file) && self.is_ours(self.from, self.closing)) {
            return Ok(false);
        }
        self.from
            .remove(self.closing)
            .map_err(|error| ArchiveProblem::io("cannot remove the original", error))?;
        (self.passed)(ArchiveStep::Removed);
        Ok(true)
    }

    /// Finishes an earlier archive: its copy is complete, but the original is still there.
    fn finish_earlier(&mut self) -> Result<Option<TransferResult>, ArchiveProblem> {
        let failed = |error: io::Error| ArchiveProblem::io("cannot read the archive", error);
        let own = self.from.stat_entry(self.closing).map_err(failed)?;
        let Some(own) = own else {
            return Ok(None);
        };
        let mut contents = None;
        for number in 0..MOST_NAMES {
            let name = names::numbered(self.name, number);
            let Some(entry) = self.to.stat_entry(&name).map_err(failed)? else {
                break;
            };
            let is_like = entry.kind == own.kind
                && entry.size == own.size
                && (entry.written - own.written).abs() <= SAME_TIME;
            if entry.id != own.id && !is_like {
                continue;
            }
            let ours = match contents.take() {
                Some(contents) => contents,
                None => self.read()?,
            };
            let theirs = self.to.read(&name).map_err(failed)?;
            let is_same = digest::read_contents(&theirs, names::has_json_lines(self.name))
                .map_err(failed)?
                == ours;
            if is_same {
                theirs.sync_all().map_err(failed)?;
                return self.adopt(name, ours).map(Some);
            }
            contents = Some(ours);
        }
        Ok(None)
    }

    fn adopt(
        &mut self,
        name: OsString,
        contents: Contents,
    ) -> Result<TransferResult, ArchiveProblem> {
        sync(self.to)?;
        (self.passed)(ArchiveStep::Recorded);
        if !self.remove_original()? {
            return Ok(TransferResult::Disturbed);
        }
        sync(self.from)?;
        (self.passed)(ArchiveStep::Settled);
        Ok(TransferResult::Done(PlacedCopy {
            name,
            contents,
            method: ArchiveMethod::Found,
            notes: vec![
                "an earlier archive copied it but was killed before it removed the original"
                    .to_owned(),
            ],
        }))
    }
}

fn collision() -> ArchiveProblem {
    ArchiveProblem::new(
        ArchiveTrouble::Collision,
        "the archive already has a file with this name",
        "omit --no-rename, or name another archive",
    )
}

fn sync(directory: &Dir) -> Result<(), ArchiveProblem> {
    directory
        .sync()
        .map_err(|error| ArchiveProblem::io("cannot sync the directory", error))
}

fn archive_error(error: &crate::Error) -> ArchiveProblem {
    match error {
        crate::Error::Io { source, .. } => ArchiveProblem::io(
            "cannot write to the archive",
            io::Error::new(source.kind(), source.to_string()),
        ),
        other => ArchiveProblem::new(ArchiveTrouble::Io, other.to_string(), ""),
    }
}
