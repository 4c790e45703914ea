//! Resources of a scope.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use fdguard_proc::ProcessId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Kind;
use super::program::Program;

/// What happens to a file when the scope closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileEnd {
    /// The file is kept.
    Keep,
    /// The file is deleted, for example a prompt or scratch file.
    Delete,
    /// The file is moved into the archive. If that fails it is kept, never deleted.
    Archive,
}

/// Who owns a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// The scope owns it and ends it.
    Owned,
    /// Someone else owns it: it is listed and left alone.
    Lent,
}

/// What the end of a process or session means for the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceRole {
    /// It is the agent: when it ends, the agent has ended.
    Main,
    /// It helps the agent and may come and go.
    Helper,
}

/// A resource.
#[derive(Debug)]
pub(super) enum Resource {
    Session { id: String },
    Program { program: Arc<Program>, name: String },
    Process { identity: ProcessId },
    Descriptor { fd: OwnedFd, name: String },
    Socket { fd: OwnedFd, name: String },
    File { path: PathBuf, end: FileEnd },
    Directory { path: PathBuf, id: (u64, u64) },
}

impl Resource {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Session { .. } => Kind::Session,
            Self::Program { .. } => Kind::Program,
            Self::Process { .. } => Kind::Process,
            Self::Descriptor { .. } => Kind::Descriptor,
            Self::Socket { .. } => Kind::Socket,
            Self::File { .. } => Kind::File,
            Self::Directory { .. } => Kind::Directory,
        }
    }

    /// Whether it is a program of which nothing is left.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Program { program, .. } if program.state().over.is_some())
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Session { id } => id.clone(),
            Self::Process { identity } => identity.to_string(),
            Self::Program { name, .. }
            | Self::Descriptor { name, .. }
            | Self::Socket { name, .. } => name.clone(),
            Self::File { path, .. } | Self::Directory { path, .. } => path.display().to_string(),
        }
    }
}

/// One resource, with its number and its ownership.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) resource: Resource,
    pub(super) ownership: Ownership,
    pub(super) role: ResourceRole,
}

/// A resource of a scope.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ResourceView {
    /// Number of the resource in the scope.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Its id, command, path or name.
    pub name: String,
    /// Who owns it.
    pub ownership: Ownership,
    /// What its end means for the agent.
    pub role: ResourceRole,
    /// Process id, if it is running.
    pub pid: Option<u32>,
    /// What happens to it when the scope closes, if it is a file.
    pub end: Option<FileEnd>,
}

impl Entry {
    pub(super) fn view(&self) -> ResourceView {
        let pid = match &self.resource {
            Resource::Program { program, .. } => {
                Some(program.pid()).filter(|_| program.state().main.is_none())
            }
            Resource::Process { identity } => Some(identity.pid).filter(|_| identity.is_alive()),
            _ => None,
        };
        let end = match &self.resource {
            Resource::File { end, .. } => Some(*end),
            _ => None,
        };
        ResourceView {
            number: self.number,
            kind: self.resource.kind(),
            name: self.resource.name(),
            ownership: self.ownership,
            role: self.role,
            pid,
            end,
        }
    }
}
