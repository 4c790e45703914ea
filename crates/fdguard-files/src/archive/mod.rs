//! Moves logs into an archive without losing a line.
//!
//! The order of the steps makes it safe. First the file is renamed in its directory
//! (`name.closing`), so that a program that opens the original name creates a new file. Then the
//! kernel must grant a lease, which it does only if the file has no writer: no descriptor, no
//! mapping, no descriptor in transit through a socket. Only then is the file moved into the
//! archive, by a rename or by a copy that is compared before the original is removed. If the
//! archive is killed at any point, it leaves names that the next archive recognizes and continues
//! from. Only a program can flush its own buffers: stop it early enough before the wait ends.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

mod argument;
mod copy;
mod digest;
mod holders;
mod job;
mod names;
mod proof;
mod receipt;
mod step;
mod transfer;
mod waker;

use argument::{Finder, NamedFile, text};
use holders::HolderSearch;
use job::{Common, Job};
use waker::Waker;

use crate::dir::{self, Dir};

pub use digest::Tail;
pub use receipt::{
    ArchiveMethod, ArchiveOutcome, ArchiveProblem, ArchiveReceipt, ArchiveReport, ArchiveTrouble,
    FileHolder, HolderSource, Steps, UnusedProof,
};
pub use step::{ArchiveObserver, ArchiveStep};

/// The most files processed at once: each uses two descriptors.
const AT_ONCE: usize = 32;
/// A wait that is practically endless.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// How to archive.
#[derive(Clone, Debug)]
pub struct Archive {
    /// The archive directory; created if missing.
    pub to: PathBuf,
    /// How long to wait for writers and locks, for all files together. Zero checks once.
    pub wait: Duration,
    /// Reject files outside this directory.
    pub within: Option<PathBuf>,
    /// Archive the target of a symbolic link, which is refused otherwise.
    pub follow: bool,
    /// Refuse a file whose name exists in the archive, instead of calling it `name.1`.
    pub no_rename: bool,
    /// If the kernel grants no lease: accept a search of the processes that can be examined.
    pub trust_scan: bool,
    /// Notified of each step. For tests.
    #[doc(hidden)]
    pub observer: Option<Arc<dyn ArchiveObserver>>,
}

impl Archive {
    /// An archive in this directory, with a wait of ten seconds.
    #[must_use]
    pub fn new(to: impl Into<PathBuf>) -> Self {
        Self {
            to: to.into(),
            wait: Duration::from_secs(10),
            within: None,
            follow: false,
            no_rename: false,
            trust_scan: false,
            observer: None,
        }
    }

    /// Archives these files. Each has its own receipt, and a failure of one does not affect the
    /// others. Blocks until all are finished.
    #[must_use]
    pub fn run(&self, files: &[PathBuf]) -> ArchiveReport {
        self.run_with(files, || self.prepare())
    }

    /// The same only for files below `within`, into a directory that is already open: whatever
    /// happens to their paths meanwhile, nothing leaves the two.
    #[must_use]
    pub fn run_below(
        &self,
        within: &Dir,
        to: std::io::Result<Dir>,
        files: &[PathBuf],
    ) -> ArchiveReport {
        self.run_with(files, || {
            let to = to.map_err(|error| unusable(&error))?;
            Ok((to, Some(within.clone())))
        })
    }

    fn run_with(
        &self,
        files: &[PathBuf],
        prepare: impl FnOnce() -> Result<(Dir, Option<Dir>), ArchiveProblem>,
    ) -> ArchiveReport {
        let began = Instant::now();
        let taken_at = Timestamp::now();
        let deadline = began + self.wait.min(LONGEST);
        let receipts = match prepare() {
            Ok((to, within)) => self.work(&to, within, files, deadline),
            Err(problem) => files
                .iter()
                .map(|path| ArchiveReceipt::refused(text(path), problem.clone()))
                .collect(),
        };
        let is_archived = |receipt: &ArchiveReceipt| {
            matches!(
                receipt.outcome,
                ArchiveOutcome::Archived | ArchiveOutcome::AlreadyArchived
            )
        };
        ArchiveReport {
            schema: "fdguard.archive/1",
            taken_at,
            to: text(&self.to),
            success: receipts.iter().all(is_archived),
            files: receipts,
            took_ms: milliseconds(began),
        }
    }

    fn prepare(&self) -> Result<(Dir, Option<Dir>), ArchiveProblem> {
        let within = self.within.as_ref().map(|path| Dir::open(path));
        let within = within.transpose().map_err(|error| ArchiveProblem {
            kind: ArchiveTrouble::Outside,
            ..ArchiveProblem::io("cannot open the --within directory", error)
        })?;
        let to = Dir::make(&self.to).map_err(|error| unusable(&error))?;
        Ok((to, within))
    }

    fn work(
        &self,
        to: &Dir,
        within: Option<Dir>,
        files: &[PathBuf],
        deadline: Instant,
    ) -> Vec<ArchiveReceipt> {
        let waker = Waker::new();
        let common = Common {
            archive: self,
            to,
            waker: &waker,
        };
        let mut work = Work::new(Finder::new(to, self.follow, within), files);
        let mut active: Vec<(usize, Job<'_>)> = Vec::new();
        loop {
            let is_last = Instant::now() >= deadline;
            while active.len() < AT_ONCE
                && let Some((index, named)) = work.queue.pop_front()
            {
                active.push((index, Job::new(&common, named)));
            }
            let mut waiting = Vec::new();
            let before = active.len();
            for (index, mut job) in active {
                if job.advance(is_last) {
                    work.done(index, job);
                } else {
                    waiting.push((index, job));
                }
            }
            active = waiting;
            let was_named = name_writers(&mut active);
            if active.is_empty() && work.queue.is_empty() {
                return work.receipts();
            }
            if active.len() == before && !was_named {
                waker.wait(deadline);
            }
        }
    }
}

/// Names the writers of new files, in one search for all; returns whether there were any.
fn name_writers(active: &mut [(usize, Job<'_>)]) -> bool {
    let asking: Vec<(usize, HolderSearch<'_>)> = active
        .iter()
        .enumerate()
        .filter_map(|(at, (_, job))| Some((at, job.wants_names()?)))
        .collect();
    if asking.is_empty() {
        return false;
    }
    let (places, files): (Vec<usize>, Vec<HolderSearch<'_>>) = asking.into_iter().unzip();
    let found = holders::find_all(&files);
    for (at, found) in places.into_iter().zip(found) {
        if let Some((_, job)) = active.get_mut(at) {
            job.name(found.writers);
        }
    }
    true
}

/// Elapsed milliseconds, to the microsecond.
fn milliseconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e6).round() / 1000.0
}

/// The archive directory cannot be used.
fn unusable(error: &std::io::Error) -> ArchiveProblem {
    let kind = match error.kind() {
        _ if dir::is_way_out(error) => ArchiveTrouble::Outside,
        std::io::ErrorKind::PermissionDenied => ArchiveTrouble::Permission,
        std::io::ErrorKind::StorageFull => ArchiveTrouble::NoRoom,
        _ => ArchiveTrouble::Io,
    };
    let why = match kind {
        ArchiveTrouble::Outside => "part of its path is a symbolic link".to_owned(),
        _ => error.to_string(),
    };
    ArchiveProblem {
        kind,
        message: format!("cannot use the archive directory: {why}"),
        remedy: "name a directory that is writable or can be created".to_owned(),
    }
}

/// Files to archive, and receipts of those that are finished.
struct Work {
    queue: VecDeque<(usize, NamedFile)>,
    receipts: Vec<(usize, ArchiveReceipt)>,
}

impl Work {
    fn new(mut finder: Finder<'_>, files: &[PathBuf]) -> Self {
        let mut work = Self {
            queue: VecDeque::new(),
            receipts: Vec::new(),
        };
        let mut known = BTreeMap::new();
        for (index, path) in files.iter().enumerate() {
            match finder.find(path) {
                Ok(named) => {
                    // A file that was named before, or by another path, is archived once.
                    let key = (named.directory.id(), named.name.clone());
                    known.entry(key).or_insert_with(|| {
                        work.queue.push_back((index, named));
                    });
                }
                Err(problem) => work.refuse(index, path, problem),
            }
        }
        work
    }

    fn refuse(&mut self, index: usize, path: &Path, problem: ArchiveProblem) {
        let receipt = ArchiveReceipt::refused(text(path), problem);
        self.receipts.push((index, receipt));
    }

    fn done(&mut self, index: usize, job: Job<'_>) {
        let (receipt, successor) = job.finish();
        let is_archived = receipt.outcome == ArchiveOutcome::Archived;
        self.receipts.push((index, receipt));
        match successor {
            Some(named) if is_archived => self.queue.push_back((index, named)),
            Some(named) => {
                let problem = ArchiveProblem {
                    kind: ArchiveTrouble::EarlierPart,
                    message: "an earlier part of it must be archived first".to_owned(),
                    remedy: "resolve the problem with the earlier part".to_owned(),
                };
                self.refuse(index, &named.path(), problem);
            }
            None => {}
        }
    }

    /// In the order of the arguments.
    fn receipts(mut self) -> Vec<ArchiveReceipt> {
        self.receipts.sort_by_key(|(index, _)| *index);
        self.receipts
            .into_iter()
            .map(|(_, receipt)| receipt)
            .collect()
    }
}
