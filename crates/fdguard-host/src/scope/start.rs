//! Starts a scope with all its resources or none: if one cannot be started, those before it are
//! released.

use std::path::PathBuf;
use std::sync::Arc;

use fdguard_proc::ProcessId;
use fdguard_process::plan::Plan;

use super::{CleanUp, CloseLimits, CloseReason, FileEnd, Ownership, ResourceRole, Scope};
use crate::Error;
use crate::session::SessionSpec;

/// Something that a scope shall hold from its start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartResource {
    /// A session that is opened.
    Session(SessionSpec, ResourceRole),
    /// A session that is open.
    OpenSession(String, Ownership, ResourceRole),
    /// A program that is started.
    Program(Box<Plan>, ResourceRole),
    /// A process that was started elsewhere.
    Process(ProcessId, Ownership, ResourceRole),
    /// A file.
    File(PathBuf, FileEnd),
    /// A directory to create.
    Directory(String),
    /// A socket of the host.
    Socket(String, std::os::fd::OwnedFd),
    /// Any other descriptor of the host.
    Descriptor(String, std::os::fd::OwnedFd),
}

/// A failed start. Everything added before is released.
#[derive(Debug, thiserror::Error)]
#[error("cannot start resource {at} of the scope: {error}")]
pub struct StartFailed {
    /// Which one, from 1.
    pub at: usize,
    /// Why.
    #[source]
    pub error: Error,
    /// The release of those before it.
    pub clean_up: Arc<CleanUp>,
}

impl Scope {
    /// Adds all of these in order, or closes the scope.
    pub async fn take_all(
        &self,
        wants: Vec<StartResource>,
        how: CloseLimits,
    ) -> Result<(), StartFailed> {
        for (at, want) in (1..).zip(wants) {
            if let Err(error) = self.want(want).await {
                let clean_up = self.close(CloseReason::StartFailed, how).await;
                return Err(StartFailed {
                    at,
                    error,
                    clean_up,
                });
            }
        }
        Ok(())
    }

    async fn want(&self, want: StartResource) -> Result<(), Error> {
        match want {
            StartResource::Session(spec, role) => self.open_session(spec, role).await.map(drop),
            StartResource::OpenSession(id, whose, role) => {
                self.take_session(&id, whose, role).map(drop)
            }
            StartResource::Program(plan, role) => self.start(*plan, role).await.map(drop),
            StartResource::Process(identity, whose, role) => {
                self.take_process(identity, whose, role).map(drop)
            }
            StartResource::File(path, end) => self.take_file(&path, end).map(drop),
            StartResource::Directory(name) => self.make_directory(&name).map(drop),
            StartResource::Socket(name, fd) => self.take_socket(&name, fd).map(drop),
            StartResource::Descriptor(name, fd) => self.take_descriptor(&name, fd).map(drop),
        }
    }
}
