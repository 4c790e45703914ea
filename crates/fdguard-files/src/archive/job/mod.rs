//! State machine for one file, from the first check to the receipt. Each step does what is possible
//! now and returns what it waits for.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Instant;

use jiff::Timestamp;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::argument::{NamedFile, refused, text, unreadable};
use super::holders::HolderSearch;
use super::proof::{Asking, Free, LeaseCheck, Question, is_locked};
use super::receipt::{ArchiveProblem, ArchiveReceipt, ArchiveTrouble, FileHolder};
use super::step::ArchiveStep;
use super::transfer::{Transfer, TransferResult};
use super::waker::Waker;
use super::{Archive, milliseconds, names};
use crate::LockFile;
use crate::dir::Dir;
use crate::lease::{self, LeaseAnswer};

mod ending;

/// How often a file that others replace is examined again immediately.
const REPLACED: usize = 3;

/// What all files of an archive share.
#[derive(Debug)]
pub(super) struct Common<'a> {
    pub(super) archive: &'a Archive,
    pub(super) to: &'a Dir,
    pub(super) waker: &'a Waker,
}

/// What a file waits for.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    /// For another archive, which holds this lock.
    Busy(PathBuf),
    /// For a lock on the file.
    Locked,
    /// For its writers.
    Written,
    /// For their names, before anything is changed.
    Names,
    /// For nothing: another file replaced it between two calls and must be examined.
    Replaced,
}

#[derive(Debug)]
enum Progress {
    Done,
    Waits(Wait),
}

/// The file, once it is claimed.
#[derive(Debug)]
struct HeldFile {
    file: File,
    id: (u64, u64),
    is_closing: bool,
}

/// One file.
#[derive(Debug)]
pub(super) struct Job<'a> {
    common: &'a Common<'a>,
    named: NamedFile,
    closing: OsString,
    lock: Option<LockFile>,
    was_busy: bool,
    held: Option<HeldFile>,
    asking: Asking,
    watch: Option<i32>,
    is_named: bool,
    has_successor: bool,
    since: Instant,
    receipt: ArchiveReceipt,
}

impl<'a> Job<'a> {
    pub(super) fn new(common: &'a Common<'a>, named: NamedFile) -> Self {
        Self {
            common,
            closing: names::closing(&named.name),
            lock: None,
            was_busy: false,
            held: None,
            asking: Asking::default(),
            watch: None,
            is_named: false,
            has_successor: false,
            since: Instant::now(),
            receipt: ArchiveReceipt::new(text(&named.path())),
            named,
        }
    }

    /// Advances as far as possible; returns whether the job is finished. With `is_last` it always
    /// is.
    pub(super) fn advance(&mut self, is_last: bool) -> bool {
        let mut outcome = self.go_on(is_last);
        for _ in 0..REPLACED {
            if matches!(outcome, Ok(Progress::Waits(Wait::Replaced))) {
                outcome = self.go_on(is_last);
            }
        }
        match outcome {
            Ok(Progress::Done) => {}
            // The names of holders are needed in any case.
            Ok(Progress::Waits(wait)) if !is_last || matches!(wait, Wait::Names) => return false,
            Ok(Progress::Waits(wait)) => {
                let problem = self.too_late(&wait);
                self.fail(problem);
            }
            Err(problem) => self.fail(problem),
        }
        if let Some(watch) = self.watch.take() {
            self.common.waker.forget(watch);
        }
        true
    }

    /// The receipt, and the file that has since taken the name.
    pub(super) fn finish(self) -> (ArchiveReceipt, Option<NamedFile>) {
        let successor = self.has_successor.then_some(self.named);
        (self.receipt, successor)
    }

    fn go_on(&mut self, is_last: bool) -> Result<Progress, ArchiveProblem> {
        if self.lock.is_none() {
            if self.is_gone()? {
                return self.gone();
            }
            let (directory, name) = (&self.named.directory, names::lock(&self.named.name));
            let taken =
                LockFile::attempt_in(directory, &name).map_err(|error| lock_problem(&error))?;
            let Some(lock) = taken else {
                let path = directory.path().join(name);
                self.was_busy = true;
                return Ok(Progress::Waits(Wait::Busy(path)));
            };
            self.lock = Some(lock);
            self.passed(ArchiveStep::Claimed);
        }
        if self.held.is_none() && !self.open()? {
            return self.gone();
        }
        if self.wants_names().is_some() {
            return Ok(Progress::Waits(Wait::Names));
        }
        if let Some(wait) = self.close_name()? {
            return Ok(Progress::Waits(wait));
        }
        self.prove_and_move(is_last)
    }

    /// The file and its path, if its writers are not known yet. Without writers no names are
    /// needed.
    pub(super) fn wants_names(&self) -> Option<HolderSearch<'_>> {
        let held = self.held.as_ref().filter(|_| !self.is_named)?;
        let name = if held.is_closing {
            &self.closing
        } else {
            &self.named.name
        };
        let is_free = lease::ask(&held.file) == LeaseAnswer::NoWriter;
        (!is_free).then(|| (self.named.directory.path().join(name), &held.file))
    }

    /// Records the processes that can write it.
    pub(super) fn name(&mut self, writers: Vec<FileHolder>) {
        self.is_named = true;
        self.receipt.writers = writers;
    }

    fn is_gone(&self) -> Result<bool, ArchiveProblem> {
        let look = |name| {
            self.named
                .directory
                .stat_entry(name)
                .map_err(|error| unreadable(&error))
        };
        Ok(look(&self.named.name)?.is_none() && look(&self.closing)?.is_none())
    }

    /// Opens the file, or what an earlier archive left of it; returns whether there was one.
    fn open(&mut self) -> Result<bool, ArchiveProblem> {
        let directory = &self.named.directory;
        let look = |name| {
            directory
                .stat_entry(name)
                .map_err(|error| unreadable(&error))
        };
        let own = look(&self.named.name)?;
        let mut left = look(&self.closing)?.filter(|entry| entry.kind == FileType::RegularFile);
        if let (Some(own), Some(closing)) = (own, left)
            && own.id == closing.id
        {
            // An earlier archive was killed between the two halves of a rename.
            directory
                .remove(&self.closing)
                .map_err(|error| ArchiveProblem::io("cannot remove its second name", error))?;
            left = None;
        }
        let is_closing = left.is_some();
        let name = match (is_closing, own) {
            (true, _) => &self.closing,
            (false, Some(entry)) if entry.kind == FileType::RegularFile => &self.named.name,
            (false, Some(entry)) => return Err(refused(entry.kind)),
            (false, None) => return Ok(false),
        };
        let file = match directory.read(name) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(unreadable(&error)),
        };
        let meta = file.metadata().map_err(|error| unreadable(&error))?;
        if !meta.is_file() {
            return Err(refused(FileType::Unknown));
        }
        self.has_successor = is_closing && own.is_some();
        self.receipt.recovered = is_closing;
        self.receipt.links = Some(meta.nlink());
        if meta.nlink() > 1 {
            self.receipt.note(format!(
                "it has {} hard links: data written later through another link is not in the copy",
                meta.nlink()
            ));
        }
        self.held = Some(HeldFile {
            file,
            id: (meta.dev(), meta.ino()),
            is_closing,
        });
        Ok(true)
    }

    /// Renames the file for the duration of the archive, so that late openers create a new one.
    fn close_name(&mut self) -> Result<Option<Wait>, ArchiveProblem> {
        let Some(held) = self.held.as_mut().filter(|held| !held.is_closing) else {
            self.watch_if(self.is_named);
            return Ok(None);
        };
        // A process that holds a lock by this name relies on the name.
        if is_locked(&held.file) {
            return Ok(Some(Wait::Locked));
        }
        let directory = &self.named.directory;
        let (name, closing) = (&self.named.name, &self.closing);
        match directory.rename(name, directory, closing) {
            Ok(()) => {}
            Err(Errno::NOENT) => {
                // Another process took it without taking the lock. Whatever is there now is
                // examined again.
                self.held = None;
                return Ok(Some(Wait::Replaced));
            }
            Err(error) => {
                return Err(ArchiveProblem::io(
                    "cannot rename it in its directory",
                    error,
                ));
            }
        }
        let entry = directory.stat_entry(closing).ok().flatten();
        if entry.is_none_or(|entry| entry.id != held.id) {
            // Another file was put there between the check and the rename.
            let _ = directory.rename(closing, directory, name);
            self.held = None;
            return Ok(Some(Wait::Replaced));
        }
        held.is_closing = true;
        self.watch_if(self.is_named);
        self.passed(ArchiveStep::Closing);
        Ok(None)
    }

    /// Starts watching before querying the kernel, so that no close in between is missed.
    fn watch_if(&mut self, is_written: bool) {
        if is_written && self.watch.is_none() {
            self.watch = self
                .common
                .waker
                .watch(&self.named.directory, &self.closing);
        }
    }

    fn prove_and_move(&mut self, is_last: bool) -> Result<Progress, ArchiveProblem> {
        let Some(held) = self.held.take() else {
            return Ok(Progress::Waits(Wait::Written));
        };
        let progress = self.with(&held, is_last);
        self.held = Some(held);
        progress
    }

    fn with(&mut self, held: &HeldFile, is_last: bool) -> Result<Progress, ArchiveProblem> {
        let path = self.named.directory.path().join(&self.closing);
        let question = Question {
            file: &held.file,
            path: &path,
            trust_scan: self.common.archive.trust_scan,
            is_last,
        };
        let asked = self
            .asking
            .ask(&question, &mut self.receipt)
            .map_err(|error| ArchiveProblem::io("cannot determine its writers", error))?;
        let free = match asked {
            LeaseCheck::Free(free) => free,
            LeaseCheck::NotYet => {
                self.watch_if(true);
                return Ok(Progress::Waits(Wait::Written));
            }
            LeaseCheck::Unproven => return Err(unproven()),
        };
        // A reader may have a lock, too.
        if is_locked(&held.file) {
            return Ok(Progress::Waits(Wait::Locked));
        }
        self.receipt.free_since = Some(Timestamp::now());
        self.receipt.proof = Some(free.proof());
        self.passed(ArchiveStep::Proven);
        let progress = self.transfer(held, &free);
        if !matches!(progress, Ok(Progress::Done)) {
            self.receipt.free_since = None;
            self.receipt.proof = None;
        }
        progress
    }

    fn transfer(&mut self, held: &HeldFile, free: &Free) -> Result<Progress, ArchiveProblem> {
        let common = self.common;
        let (directory, closing) = (
            std::rc::Rc::clone(&self.named.directory),
            self.closing.clone(),
        );
        let (name, recovered) = (self.named.name.clone(), self.receipt.recovered);
        let moved = Transfer {
            from: &directory,
            closing: &closing,
            name: &name,
            file: &held.file,
            id: held.id,
            free,
            to: common.to,
            may_number: !common.archive.no_rename,
            recovered,
            passed: &mut |step| self.passed(step),
        }
        .run()?;
        match moved {
            TransferResult::Done(placed) => {
                self.placed(placed);
                Ok(Progress::Done)
            }
            TransferResult::Disturbed => Ok(Progress::Waits(Wait::Written)),
            TransferResult::Busy => Ok(Progress::Waits(Wait::Busy(
                common.to.path().join(names::lock(&name)),
            ))),
        }
    }

    fn passed(&mut self, step: ArchiveStep) {
        let ms = milliseconds(self.since);
        self.since = Instant::now();
        self.receipt.steps_ms.0.retain(|(other, _)| *other != step);
        self.receipt.steps_ms.0.push((step, ms));
        if let Some(observer) = &self.common.archive.observer {
            observer.passed(step, &self.named.path());
        }
    }
}

fn unproven() -> ArchiveProblem {
    ArchiveProblem::new(
        ArchiveTrouble::Unproven,
        "cannot prove that it has no writers: the kernel grants no lease, and some processes cannot be examined",
        "run as the owner of the file or as root, or archive it anyway with --trust-scan",
    )
}

fn lock_problem(error: &crate::Error) -> ArchiveProblem {
    match error {
        crate::Error::Io { source, .. } => ArchiveProblem::io(
            "cannot write to its directory",
            std::io::Error::new(source.kind(), source.to_string()),
        ),
        other => ArchiveProblem::new(ArchiveTrouble::Io, other.to_string(), ""),
    }
}
