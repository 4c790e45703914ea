//! The receipt: the result for each file.

use fdguard_core::{Gap, Text};
use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap as _, Serializer};

use super::digest::Tail;
use super::step::ArchiveStep;

/// What an archive did, file by file.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ArchiveReport {
    /// `fdguard.archive/1`.
    pub schema: &'static str,
    /// Start time.
    pub taken_at: Timestamp,
    /// The archive.
    pub to: Text,
    /// Whether every file is in an archive now.
    pub success: bool,
    /// A receipt for each file.
    pub files: Vec<ArchiveReceipt>,
    /// How long all of it took, in milliseconds.
    pub took_ms: f64,
}

/// The result for one file.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ArchiveReceipt {
    /// The file, under its own name.
    pub source: Text,
    /// Result for the file.
    pub outcome: ArchiveOutcome,
    /// Where it is in the archive; absent if it is not there, or if another archive moved it.
    pub archived_to: Option<Text>,
    /// Where it was left, if it is not archived; absent if there is nothing.
    pub kept_at: Option<Text>,
    /// How it got into the archive.
    pub method: Option<ArchiveMethod>,
    /// Complete lines.
    pub lines: Option<u64>,
    /// All bytes.
    pub bytes: Option<u64>,
    /// Hash of all bytes, in hexadecimal.
    pub sha256: Option<String>,
    /// How it ends.
    pub tail: Option<Tail>,
    /// Its names in the file system; more than one: hard links.
    pub links: Option<u64>,
    /// How it was proven that there is no writer.
    pub proof: Option<UnusedProof>,
    /// Since when there has been no writer; absent while there is one.
    pub free_since: Option<Timestamp>,
    /// Writers at the start and at the deadline.
    pub writers: Vec<FileHolder>,
    /// Lock holders at the deadline.
    pub locks: Vec<FileHolder>,
    /// Whether this archive resumed an interrupted one.
    pub recovered: bool,
    /// How long each step took, in milliseconds, in order.
    pub steps_ms: Steps,
    /// Remarks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What could not be observed.
    pub gaps: Vec<Gap>,
    /// Why it is not archived.
    pub error: Option<ArchiveProblem>,
}

impl ArchiveReceipt {
    pub(super) fn new(source: Text) -> Self {
        Self {
            source,
            outcome: ArchiveOutcome::Kept,
            archived_to: None,
            kept_at: None,
            method: None,
            lines: None,
            bytes: None,
            sha256: None,
            tail: None,
            links: None,
            proof: None,
            free_since: None,
            writers: Vec::new(),
            locks: Vec::new(),
            recovered: false,
            steps_ms: Steps::default(),
            notes: Vec::new(),
            gaps: Vec::new(),
            error: None,
        }
    }

    /// For a file that was refused before anything was done.
    pub(super) fn refused(source: Text, problem: ArchiveProblem) -> Self {
        Self {
            outcome: problem.outcome(),
            kept_at: (problem.outcome() == ArchiveOutcome::Kept).then(|| source.clone()),
            error: Some(problem),
            ..Self::new(source)
        }
    }

    pub(super) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }
}

/// Result for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArchiveOutcome {
    /// It is in the archive.
    Archived,
    /// Another archive moved it first.
    AlreadyArchived,
    /// It is still in its place.
    Kept,
    /// It could not be examined.
    NotSeen,
}

/// How a file got into the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArchiveMethod {
    /// Renamed: the same file.
    Rename,
    /// Copied, compared and removed.
    Copy,
    /// It was found there: an earlier archive had finished everything, or all but the removal.
    Found,
}

/// How it was proven that there is no writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnusedProof {
    /// The kernel granted a lease, which it does only if there is no writer.
    Lease,
    /// No readable process has it open for writing.
    Scan,
}

/// A process that has the file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FileHolder {
    /// Its number.
    pub pid: u32,
    /// Its command.
    pub comm: Text,
    /// Its descriptor; absent where it has none.
    pub fd: Option<u32>,
    /// How it holds it.
    pub by: HolderSource,
    /// Whether it still held it at the deadline.
    pub at_deadline: bool,
}

/// How a process holds a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderSource {
    /// Through a descriptor.
    Descriptor,
    /// Through a mapping whose writes go into the file.
    Mapping,
    /// Through an io_uring that has it registered.
    IoUring,
}

/// Why a file is not archived.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ArchiveProblem {
    /// In one word.
    pub kind: ArchiveTrouble,
    /// In one line.
    pub message: String,
    /// What would help.
    pub remedy: String,
}

impl ArchiveProblem {
    pub(super) fn new(
        kind: ArchiveTrouble,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// A problem from a system error.
    pub(super) fn io(what: &str, error: impl Into<std::io::Error>) -> Self {
        let error = error.into();
        let (kind, remedy) = match error.kind() {
            std::io::ErrorKind::NotFound => (
                ArchiveTrouble::Io,
                "try again: a file or directory disappeared meanwhile",
            ),
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => (
                ArchiveTrouble::Permission,
                "run as the owner of the file and both directories, or with sudo",
            ),
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => (
                ArchiveTrouble::NoRoom,
                "free space in the archive, or name another one",
            ),
            std::io::ErrorKind::InvalidFilename => (ArchiveTrouble::Io, "shorten the file name"),
            _ => (ArchiveTrouble::Io, "check the kernel log (dmesg)"),
        };
        Self::new(kind, format!("{what}: {error}"), remedy)
    }

    /// Whether the file was left as it was or could not be examined.
    pub(super) fn outcome(&self) -> ArchiveOutcome {
        match self.kind {
            ArchiveTrouble::NotFound
            | ArchiveTrouble::IsDirectory
            | ArchiveTrouble::NotAFile
            | ArchiveTrouble::Unreadable => ArchiveOutcome::NotSeen,
            _ => ArchiveOutcome::Kept,
        }
    }
}

/// Why a file is not archived, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArchiveTrouble {
    /// A process can still write it.
    StillWritten,
    /// A process holds a lock on it.
    Locked,
    /// Another archive is processing it.
    BeingArchived,
    /// It could not be proven that there is no writer.
    Unproven,
    /// A file of this name is in the archive, and no other name was allowed.
    Collision,
    /// No space in the archive.
    NoRoom,
    /// Not allowed.
    Permission,
    /// It cannot be read.
    Unreadable,
    /// It is a symbolic link.
    IsLink,
    /// It is outside the given directory.
    Outside,
    /// It is already in the archive.
    InArchive,
    /// It is a directory.
    IsDirectory,
    /// It is not a regular file.
    NotAFile,
    /// It does not exist.
    NotFound,
    /// An earlier part of it must be archived first.
    EarlierPart,
    /// The copy differs: the disk is failing, or an undetected writer exists.
    Differs,
    /// System error.
    Io,
}

/// How long each step took.
#[derive(Clone, Debug, Default)]
pub struct Steps(pub Vec<(ArchiveStep, f64)>);

impl Steps {
    /// How long a step took, in milliseconds; absent when it was not done.
    #[must_use]
    pub fn seconds(&self, step: ArchiveStep) -> Option<f64> {
        let found = self.0.iter().find(|(one, _)| *one == step);
        found.map(|(_, ms)| *ms)
    }
}

impl Serialize for Steps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (step, ms) in &self.0 {
            map.serialize_entry(step, ms)?;
        }
        map.end()
    }
}
