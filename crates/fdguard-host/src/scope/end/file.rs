//! Handles a file or directory at the end of a scope. A file that cannot be archived stays where it
//! is: evidence is never deleted instead.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fdguard_files::archive::{Archive, ArchiveOutcome, ArchiveReceipt, ArchiveTrouble};
use rustix::fs::{AtFlags, FileType, unlinkat};
use rustix::io::Errno;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::timeout;

use super::super::clean_up::{CleanUpAction, ResourceDetails};
use super::super::resource::FileEnd;
use super::super::root::PathRefusal;
use super::{Around, ScopeEnd, too_long};

/// Why an attempt failed, and whether another one could help.
struct Failure {
    end: Box<ScopeEnd>,
    is_final: bool,
}

impl From<PathRefusal> for Failure {
    fn from(refused: PathRefusal) -> Self {
        let is_final = !matches!(refused, PathRefusal::Io { .. });
        Self {
            end: Box::new(ScopeEnd::failed(refused.to_string())),
            is_final,
        }
    }
}

impl Failure {
    fn again(path: &Path, error: &io::Error) -> Self {
        Self {
            end: Box::new(ScopeEnd::failed(format!("{}: {error}", path.display()))),
            is_final: false,
        }
    }

    fn never(error: impl Into<String>) -> Self {
        Self {
            end: Box::new(ScopeEnd::failed(error)),
            is_final: true,
        }
    }
}

pub(in crate::scope) async fn end_file(path: PathBuf, end: FileEnd, around: Around) -> ScopeEnd {
    let limit = around.how.limit;
    match end {
        FileEnd::Keep => ScopeEnd::fine(CleanUpAction::Kept),
        FileEnd::Delete => twice(limit, move || delete(&path, &around)).await,
        FileEnd::Archive => twice(limit, move || archive(&path, &around)).await,
    }
}

/// Removes a directory with its content, if it is the one that the scope created.
pub(in crate::scope) async fn delete_directory(
    path: PathBuf,
    id: (u64, u64),
    around: Around,
) -> ScopeEnd {
    twice(around.how.limit, move || remove(&path, id, &around)).await
}

fn delete(path: &Path, around: &Around) -> Result<ScopeEnd, Failure> {
    let Some(place) = around.root.find(path)? else {
        return Ok(ScopeEnd::fine(CleanUpAction::Absent));
    };
    if place.kind == FileType::Directory {
        return Err(Failure::never(format!(
            "cannot delete {}: it is a directory",
            path.display()
        )));
    }
    match unlinkat(&place.parent, &place.name, AtFlags::empty()) {
        Ok(()) => Ok(ScopeEnd::fine(CleanUpAction::Deleted)),
        Err(Errno::NOENT) => Ok(ScopeEnd::fine(CleanUpAction::Absent)),
        Err(errno) => Err(Failure::again(path, &errno.into())),
    }
}

fn archive(path: &Path, around: &Around) -> Result<ScopeEnd, Failure> {
    let place = around.root.find(path)?;
    if place.is_none() && around.root.find(&half_archived(path))?.is_none() {
        return Ok(ScopeEnd::fine(CleanUpAction::Absent));
    }
    if place.is_some_and(|place| place.kind != FileType::RegularFile) {
        let text = format!(
            "cannot archive {}: it is not a regular file",
            path.display()
        );
        return Err(Failure::never(text));
    }
    let mut archive = Archive::new(around.archive.path(&around.root));
    archive.wait = around.how.archive_wait;
    let within = around.root.dir()?;
    let to = around.archive.make(&within);
    let report = archive.run_below(&within, to, &[around.root.path().join(path)]);
    let Some(receipt) = report.files.into_iter().next() else {
        return Err(Failure::never("the archive returned no receipt"));
    };
    judge(path, &receipt)
}

/// The name that an interrupted archive leaves.
fn half_archived(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".closing");
    PathBuf::from(name)
}

fn judge(path: &Path, receipt: &ArchiveReceipt) -> Result<ScopeEnd, Failure> {
    let details = ResourceDetails {
        archive: serde_json::to_value(receipt).ok(),
        ..ResourceDetails::default()
    };
    let problem = receipt.error.as_ref();
    match receipt.outcome {
        ArchiveOutcome::Archived | ArchiveOutcome::AlreadyArchived => {
            Ok(ScopeEnd::fine(CleanUpAction::Archived).with(details))
        }
        // It disappeared between this check and the archive's.
        _ if problem.is_some_and(|it| it.kind == ArchiveTrouble::NotFound) => {
            Ok(ScopeEnd::fine(CleanUpAction::Absent))
        }
        _ => {
            let why = problem.map_or("not archived", |it| it.message.as_str());
            let mut end = ScopeEnd::failed(format!("{}: {why}", path.display()));
            end.details = details;
            let is_final = problem.is_some_and(|it| !may_pass(it.kind));
            let end = Box::new(end);
            Err(Failure { end, is_final })
        }
    }
}

/// Whether another try could find it otherwise.
fn may_pass(trouble: ArchiveTrouble) -> bool {
    matches!(
        trouble,
        ArchiveTrouble::StillWritten
            | ArchiveTrouble::Locked
            | ArchiveTrouble::BeingArchived
            | ArchiveTrouble::NoRoom
            | ArchiveTrouble::Io
    )
}

fn remove(path: &Path, id: (u64, u64), around: &Around) -> Result<ScopeEnd, Failure> {
    let Some(place) = around.root.find(path)? else {
        return Ok(ScopeEnd::fine(CleanUpAction::Absent));
    };
    if place.id != id {
        let text = format!(
            "cannot delete {}: another directory has replaced it",
            path.display()
        );
        return Err(Failure::never(text));
    }
    match std::fs::remove_dir_all(through(&place.parent).join(&place.name)) {
        Ok(()) => Ok(ScopeEnd::fine(CleanUpAction::Deleted)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(ScopeEnd::fine(CleanUpAction::Absent))
        }
        Err(error) => Err(Failure::again(path, &error)),
    }
}

/// An open directory as a path that refers to exactly that directory.
fn through(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

type ArchiveAttempt = Result<ScopeEnd, Failure>;

/// Runs it on a blocking thread. An attempt that takes too long is not started a second time in
/// parallel: it is awaited once more.
async fn twice(
    limit: Duration,
    work: impl Fn() -> ArchiveAttempt + Clone + Send + 'static,
) -> ScopeEnd {
    let mut running = spawn_blocking(work.clone());
    let first = match timeout(limit, &mut running).await {
        Ok(done) => match finish(done) {
            Ok(end) => return end,
            Err(failure) if failure.is_final => return *failure.end,
            Err(failure) => {
                running = spawn_blocking(work);
                failure.end.errors
            }
        },
        Err(_elapsed) => vec![too_long(limit)],
    };
    match timeout(limit, &mut running).await {
        Ok(done) => finish(done)
            .unwrap_or_else(|failure| *failure.end)
            .after(first),
        Err(_elapsed) => ScopeEnd::failed("the operation is still running").after(first),
    }
}

fn finish(done: Result<ArchiveAttempt, JoinError>) -> ArchiveAttempt {
    done.unwrap_or_else(|error| Err(Failure::never(error.to_string())))
}
