//! One descriptor of one process.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Class, Detail, Fd, FileId, OpenFlags, Pid, Text};

/// How a descriptor may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Reading only.
    #[serde(rename = "r")]
    Read,
    /// Writing only.
    #[serde(rename = "w")]
    Write,
    /// Both.
    #[serde(rename = "rw")]
    ReadWrite,
    /// Neither: the descriptor only names a place (`O_PATH`).
    #[serde(rename = "path")]
    Path,
}

impl Mode {
    /// Whether writing is allowed.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::ReadWrite)
    }

    /// Whether reading is allowed.
    #[must_use]
    pub fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite)
    }

    /// The public name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "r",
            Self::Write => "w",
            Self::ReadWrite => "rw",
            Self::Path => "path",
        }
    }
}

/// A process that holds a descriptor, and its number for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FdHolder {
    /// The process.
    pub pid: Pid,
    /// Its number for the thing.
    pub fd: Fd,
    /// Whether it may write through it; absent where that was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
}

/// An open file that several numbers refer to, by duplication, inheritance or transfer: they share
/// its position and its flags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedOpenFile {
    /// The other numbers, of this process and of those that were examined with it.
    pub shared_with: Vec<FdHolder>,
    /// How many of them are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shared_more: u64,
}

impl SharedOpenFile {
    /// Whether another process than this has it open.
    #[must_use]
    pub fn is_held_outside(&self, pid: Pid) -> bool {
        self.shared_with.iter().any(|holder| holder.pid != pid)
    }
}

/// One descriptor as observed. A record never mixes two files: the reader checks the identity and
/// reads again when the number was reused in between.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FdEntry {
    /// Its number.
    pub fd: Fd,
    /// What kind of thing it is.
    pub class: Class,
    /// What it points at, for people: a path, a peer, a name.
    pub target: Text,
    /// How it may be used; unknown where fdinfo could not be read.
    pub mode: Option<Mode>,
    /// Whether it closes at exec.
    pub cloexec: Option<bool>,
    /// Whether the file has no name left (link count zero).
    pub deleted: bool,
    /// Class-specific details.
    pub detail: Detail,
    /// What it refers to, for comparing with others.
    pub id: Option<FileId>,
    /// Other processes that hold the same thing; empty where none was found or none was searched
    /// for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<FdHolder>,
    /// How many holders are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    pub shared_more: u64,
    /// The other numbers of its open file; absent where none was found or none was searched for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_file: Option<Box<SharedOpenFile>>,
    /// The other flags it was opened with; unknown where fdinfo could not be read.
    #[serde(skip_serializing_if = "crate::open_flags::is_silent")]
    pub flags: Option<OpenFlags>,
}

impl FdEntry {
    /// The path of the file behind it, when there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Text> {
        match &self.detail {
            Detail::File(file) => Some(&file.path),
            _ => None,
        }
    }
}

/// Whether a count of omitted entries need not be written.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the shape that serde asks for"
)]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The stored shape: `detail` can only be read once the class is known.
#[derive(Deserialize)]
struct StoredEntry {
    fd: Fd,
    class: Class,
    target: Text,
    mode: Option<Mode>,
    cloexec: Option<bool>,
    #[serde(default)]
    deleted: bool,
    #[serde(default)]
    detail: serde_json::Value,
    id: Option<FileId>,
    #[serde(default)]
    shared_with: Vec<FdHolder>,
    #[serde(default)]
    shared_more: u64,
    open_file: Option<Box<SharedOpenFile>>,
    flags: Option<OpenFlags>,
}

impl<'de> Deserialize<'de> for FdEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = StoredEntry::deserialize(deserializer)?;
        let detail = Detail::from_json(&stored.class, stored.detail).map_err(|error| {
            D::Error::custom(format!("detail of descriptor {}: {error}", stored.fd))
        })?;
        Ok(Self {
            fd: stored.fd,
            class: stored.class,
            target: stored.target,
            mode: stored.mode,
            cloexec: stored.cloexec,
            deleted: stored.deleted,
            detail,
            id: stored.id,
            shared_with: stored.shared_with,
            shared_more: stored.shared_more,
            open_file: stored.open_file,
            flags: stored.flags,
        })
    }
}
