//! What scopes use of the host: its sessions, its registry, and an event observer.

use std::fmt;
use std::sync::Arc;

use fdguard_files::Registry;

use super::CleanUp;
use super::Journals;
use super::daemon::ScopeScan;
use crate::host::Host;
use crate::roots::Roots;

/// An event that no caller requested.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ScopeEvent {
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
    /// The journal could not be written, or a previous host's journal could not be taken over.
    Will {
        /// Which scope.
        scope: String,
        /// Why.
        error: String,
    },
    /// The daemon completed a scan.
    Scanned(Arc<ScopeScan>),
}

/// The event observer. It is called from many tasks and must not block.
#[derive(Clone)]
pub struct ScopeObserver(Arc<dyn Fn(&ScopeEvent) + Send + Sync>);

impl ScopeObserver {
    /// Calls this.
    pub fn new(hear: impl Fn(&ScopeEvent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hear))
    }

    pub(super) fn tell(&self, event: &ScopeEvent) {
        (self.0)(event);
    }
}

impl Default for ScopeObserver {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for ScopeObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Shared by all scopes of a host.
#[derive(Clone, Debug, Default)]
pub struct ScopeContext {
    /// The host whose sessions scopes own; `None` if there are no sessions.
    pub host: Option<Host>,
    /// The registry; `None` for no entries.
    pub registry: Option<Registry>,
    /// The journals for the next host; `None` for no journals.
    pub wills: Option<Journals>,
    /// Receives every end.
    pub observer: ScopeObserver,
    /// Roots and archives of scopes are below these; absent: anywhere.
    pub roots: Option<Roots>,
}
