//! What scopes use of the host: its sessions, the archive, and somebody who hears what happens.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::CleanUp;
use super::daemon::Scan;
use crate::Error;
use crate::host::Host;
use crate::receipt::{Reason, Receipt};
use crate::session::Spec;

/// Sessions, as a scope sees them.
pub trait Sessions: Send + Sync + fmt::Debug {
    /// Opens one for a client, and gives its id.
    fn open<'a>(
        &'a self,
        client: Option<&'a str>,
        spec: Spec,
    ) -> BoxFuture<'a, Result<String, Error>>;

    /// Ends one. [`Error::Unknown`] and [`Error::Ended`] mean that it is gone.
    fn close<'a>(&'a self, id: &'a str, reason: Reason) -> BoxFuture<'a, Result<Receipt, Error>>;

    /// How one is; `None` when it is gone.
    fn look(&self, id: &str) -> Option<SessionLook>;
}

/// How a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLook {
    /// Its program; absent when that has ended.
    pub pid: Option<u32>,
    /// A command runs.
    pub busy: bool,
    /// Since its last command.
    pub idle: Duration,
}

impl Sessions for Host {
    fn open<'a>(
        &'a self,
        client: Option<&'a str>,
        spec: Spec,
    ) -> BoxFuture<'a, Result<String, Error>> {
        Box::pin(Self::open(self, client, spec))
    }

    fn close<'a>(&'a self, id: &'a str, reason: Reason) -> BoxFuture<'a, Result<Receipt, Error>> {
        Box::pin(Self::close(self, id, reason))
    }

    fn look(&self, id: &str) -> Option<SessionLook> {
        let all = self.sessions().into_iter();
        let info = all.into_iter().find(|info| info.id == id)?;
        Some(SessionLook {
            pid: info.pid,
            busy: info.busy_ms.is_some(),
            idle: Duration::from_millis(info.idle_ms),
        })
    }
}

/// Moves a file away without losing a line of it. It blocks.
pub trait Archiver: Send + Sync + fmt::Debug {
    /// Moves `file`, which is below `within`, into the folder `to`, which is made where it is missing, once nobody writes it any more.
    /// A file that could not be moved is where it was.
    fn archive(
        &self,
        file: &Path,
        to: &Path,
        within: &Path,
        wait: Duration,
    ) -> Result<serde_json::Value, NotArchived>;
}

/// Why a file is still where it was.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotArchived {
    /// In one line.
    pub why: String,
    /// What the archive says about it, where it says something.
    pub receipt: Option<serde_json::Value>,
}

/// Something that happened without anybody having asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A scope is closed.
    Closed(Arc<CleanUp>),
    /// A resource could not be handled at the first try.
    Failed {
        /// Which scope.
        scope: String,
        /// Its number.
        number: u64,
        /// Why.
        error: String,
    },
    /// The daemon looked.
    Scanned(Arc<Scan>),
}

/// Who hears what happens. Called from many tasks: it must not wait.
#[derive(Clone)]
pub struct Observer(Arc<dyn Fn(&Event) + Send + Sync>);

impl Observer {
    /// Calls this.
    pub fn new(hear: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(super) fn tell(&self, event: &Event) {
        (self.0)(event);
    }
}

impl Default for Observer {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// What all scopes of a host share.
#[derive(Clone, Debug, Default)]
pub struct Means {
    /// Absent: scopes hold no sessions.
    pub sessions: Option<Arc<dyn Sessions>>,
    /// Absent: files that are to be archived are kept, and the clean-up says that it failed.
    pub archiver: Option<Arc<dyn Archiver>>,
    /// Hears of every end.
    pub observer: Observer,
}
