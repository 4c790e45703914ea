//! Adds resources to a scope. A closing scope accepts nothing, and a resource that it rejects is
//! ended.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fdguard_proc::ProcessId;
use fdguard_process::plan::Plan;
use fdguard_process::random;

use super::Scope;
use super::journal::{self, Line};
use super::leftover::VARIABLE;
use super::program::Program;
use super::resource::{Entry, FileEnd, Ownership, Resource, ResourceRole};
use super::root::PathRefusal;
use crate::Error;
use crate::receipt::SessionEndReason;
use crate::session::SessionSpec;

/// Things that one scope may hold.
const MOST: usize = 10_000;

/// Something that a scope took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquiredResource {
    /// Its number in the scope.
    pub number: u64,
    /// Its pid, if it is a program that the scope started.
    pub pid: Option<u32>,
}

impl Scope {
    /// Opens a session for the scope, whose processes carry its mark. Returns the session's id.
    pub async fn open_session(
        &self,
        mut spec: SessionSpec,
        role: ResourceRole,
    ) -> Result<String, Error> {
        let host = self.means.host.as_ref();
        let host = host.ok_or_else(|| Error::Bad("sessions are not available".into()))?;
        self.is_open()?;
        spec.environment.extend(self.environment());
        let id = host.open(self.client(), spec).await?;
        let resource = Resource::Session { id: id.clone() };
        if let Err(error) = self.hold(resource, Ownership::Owned, role) {
            drop(host.close(&id, SessionEndReason::Asked).await);
            return Err(error);
        }
        Ok(id)
    }

    /// Adds a session that is already open.
    pub fn take_session(
        &self,
        id: &str,
        whose: Ownership,
        role: ResourceRole,
    ) -> Result<u64, Error> {
        let id = id.to_owned();
        self.hold(Resource::Session { id }, whose, role)
    }

    /// Starts a program with a keeper of its own. Its environment gets the scope's mark.
    pub async fn start(
        &self,
        mut plan: Plan,
        role: ResourceRole,
    ) -> Result<AcquiredResource, Error> {
        self.is_open()?;
        plan.environment.retain(|(name, _)| name != VARIABLE);
        let mark = self.environment().into_iter();
        plan.environment
            .extend(mark.map(|(name, value)| (name.into(), value.into())));
        let name = plan.command.first().cloned().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let program = Program::start(plan).await?;
        let pid = Some(program.pid());
        let program = Arc::new(program);
        let number = self.hold(Resource::Program { program, name }, Ownership::Owned, role)?;
        Ok(AcquiredResource { number, pid })
    }

    /// Adds a process that was started elsewhere. It is signalled only while it is the same
    /// process.
    pub fn take_process(
        &self,
        identity: ProcessId,
        whose: Ownership,
        role: ResourceRole,
    ) -> Result<u64, Error> {
        let pid = identity.pid;
        if pid == std::process::id() || pid == 1 {
            let text = format!("cannot add process {pid}: a scope must not end it");
            return Err(Error::Bad(text));
        }
        self.hold(Resource::Process { identity }, whose, role)
    }

    /// Adds a file below the root, which need not exist yet.
    pub fn take_file(&self, path: &Path, end: FileEnd) -> Result<u64, Error> {
        let path = self.root.relative(path).map_err(refused)?;
        self.hold(
            Resource::File { path, end },
            Ownership::Owned,
            ResourceRole::Helper,
        )
    }

    /// Adds a log: it is archived at the end, and its growth shows that the agent is alive.
    pub fn take_log(&self, path: &Path) -> Result<u64, Error> {
        self.take_file(path, FileEnd::Archive)
    }

    /// Adds a prompt file: it is deleted at the end.
    pub fn take_prompt(&self, path: &Path) -> Result<u64, Error> {
        self.take_file(path, FileEnd::Delete)
    }

    /// Creates a private directory below the root that is removed at the end. Returns its path.
    pub fn make_directory(&self, name: &str) -> Result<PathBuf, Error> {
        self.is_open()?;
        let inner = format!("{name}-{}", random::id().map_err(Error::random)?);
        let inner = self.root.relative(Path::new(&inner)).map_err(refused)?;
        let id = self.root.make(&inner).map_err(refused)?;
        let path = inner.clone();
        let resource = Resource::Directory { path, id };
        if let Err(error) = self.hold(resource, Ownership::Owned, ResourceRole::Helper) {
            // It is empty and unused.
            drop(self.root.remove_empty(&inner));
            return Err(error);
        }
        Ok(self.root.path().join(inner))
    }

    /// Adds a socket of the host: both directions are shut down at the end, then it is closed.
    pub fn take_socket(&self, name: &str, fd: OwnedFd) -> Result<u64, Error> {
        let name = name.to_owned();
        self.hold(
            Resource::Socket { fd, name },
            Ownership::Owned,
            ResourceRole::Helper,
        )
    }

    /// Adds any other descriptor of the host.
    pub fn take_descriptor(&self, name: &str, fd: OwnedFd) -> Result<u64, Error> {
        let name = name.to_owned();
        self.hold(
            Resource::Descriptor { fd, name },
            Ownership::Owned,
            ResourceRole::Helper,
        )
    }

    /// What the environment of every process that others start for this scope must contain.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let mark = self.mark.clone();
        mark.map(|mark| (VARIABLE.to_owned(), mark))
            .into_iter()
            .collect()
    }

    fn is_open(&self) -> Result<(), Error> {
        match &self.state().entries {
            Some(_) => Ok(()),
            None => Err(self.ended()),
        }
    }

    fn ended(&self) -> Error {
        Error::Ended {
            id: self.id.clone(),
            why: "the scope is closed or closing".to_owned(),
        }
    }

    /// A rejected resource is dropped, and thereby ended, after the lock is released.
    fn hold(
        &self,
        resource: Resource,
        ownership: Ownership,
        role: ResourceRole,
    ) -> Result<u64, Error> {
        let mut state = self.state();
        let number = state.next_number;
        let Some(entries) = &mut state.entries else {
            drop(state);
            return Err(self.ended());
        };
        if entries.len() >= MOST {
            // Ended helpers have nothing more to report.
            entries.retain(|entry| entry.role == ResourceRole::Main || !entry.resource.is_over());
        }
        if entries.len() >= MOST {
            let (what, count) = ("resources in the scope", entries.len());
            return Err(Error::Full { what, count });
        }
        let entry = Entry {
            number,
            resource,
            ownership,
            role,
        };
        let line = journal::line(&entry);
        entries.push(entry);
        state.next_number += 1;
        state.touched = Instant::now();
        drop(state);
        self.write_line(line);
        Ok(number)
    }

    /// Releases a resource without ending it. A descriptor is closed. A program cannot be released:
    /// it would be killed.
    pub fn release(&self, number: u64) -> Result<(), Error> {
        let unknown = || Error::Unknown {
            what: "resource",
            id: number.to_string(),
        };
        let mut state = self.state();
        let entries = state.entries.as_mut().ok_or_else(unknown)?;
        let at = entries.iter().position(|it| it.number == number);
        let at = at.ok_or_else(unknown)?;
        let is_program = |entry: &Entry| matches!(entry.resource, Resource::Program { .. });
        if entries.get(at).is_some_and(is_program) {
            let text = "cannot release a program that the scope started".to_owned();
            return Err(Error::Bad(text));
        }
        let released = entries.remove(at);
        drop(state);
        drop(released);
        self.write_line(Some(Line::Released { number }));
        Ok(())
    }
}

pub(super) fn refused(why: PathRefusal) -> Error {
    Error::Bad(why.to_string())
}
