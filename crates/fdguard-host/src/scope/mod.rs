//! Everything that belongs to one agent, and its cleanup.
//!
//! A [`Scope`] owns sessions, programs, processes, files, directories and descriptors. Every path
//! closes it: [`Scope::close`], its drop, a resource that cannot be started, the end of its client
//! or host. The first closer does the work, in its own task, so that a caller that disconnects
//! leaves nothing half done; all others get the same [`CleanUp`]. [`Scopes`] are all scopes of a
//! host, and the [`daemon`] closes abandoned ones.
//!
//! Migration from a cleanup script with tmux and JSON: `tmux_session_killed` is `ok` of the
//! resource with kind `session` or `program`; `prompt_file_deleted` is `did: deleted` of its file;
//! `log_files_archived` and `archived_files` are `did: archived` with the receipt in
//! `details.archive`; `escalated_to_sigkill` is `details.killed` above 0; `verified_no_zombies` and
//! `zombie_process_details` are `look.leftovers`; `errors` are the `error` of each resource.

mod acquire;
mod archive_place;
mod clean_up;
mod closing;
mod context;
pub mod daemon;
mod end;
mod inside;
mod journal;
mod launch;
mod leftover;
mod program;
mod record;
mod resource;
pub mod root;
mod scopes;
mod start;
mod ticket;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fdguard_process::random;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use acquire::AcquiredResource;
pub use clean_up::{
    CleanUp, CleanUpAction, CloseReason, EnvironmentScan, Kind, ResourceDetails, ResourceOutcome,
    SCHEMA, SUCCESS_RULE, ScopeLeftover,
};
pub use context::{ScopeContext, ScopeEvent, ScopeObserver};
pub use end::CloseLimits;
pub use inside::{tcp_callers, unix_caller};
#[cfg(feature = "fuzzing")]
pub use journal::fuzz_journal;
pub use journal::{Journals, UnfinishedJournal};
pub use launch::ProgramLaunch;
pub use leftover::VARIABLE;
pub(crate) use program::Program;
pub use resource::{FileEnd, Ownership, ResourceRole, ResourceView};
pub use scopes::{CloseAnswer, ScopeGuard, Scopes};
pub use start::{StartFailed, StartResource};
pub use ticket::{AcceptedClose, CloseTicket};

use crate::Error;
use acquire::refused;
use archive_place::ArchivePlace;
use closing::Subject;
use daemon::AgentStatus;
use end::Around;
use journal::{Head, Journal, Line};
use record::Record;
use resource::Entry;
use root::ScopeRoot;

/// The specification of a scope.
#[derive(Clone, Debug)]
pub struct ScopeSpec {
    /// For people.
    pub name: String,
    /// All its files are below this directory.
    pub root: PathBuf,
    /// Id of the client that owns it. It ends with the client's lease.
    pub client: Option<String>,
    /// Where files are archived; `archive` in the root when absent.
    pub archive_to: Option<PathBuf>,
}

/// The resources of one agent. Drop closes it in a task.
#[derive(Debug)]
pub struct Scope {
    id: String,
    spec: ScopeSpec,
    root: ScopeRoot,
    archive: ArchivePlace,
    mark: Option<String>,
    started_at: Timestamp,
    /// The same by the monotonic clock.
    born: Instant,
    means: Arc<ScopeContext>,
    runtime: Handle,
    state: Mutex<State>,
    result: watch::Sender<Option<Arc<CleanUp>>>,
}

#[derive(Debug)]
struct State {
    /// `None` once closing has started.
    entries: Option<Vec<Entry>>,
    next_number: u64,
    status: AgentStatus,
    reasons: Vec<daemon::ReasonCode>,
    touched: Instant,
    ticket: Option<AcceptedClose>,
    /// Its entry in the registry, until it is closed.
    record: Option<Record>,
}

/// A scope.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ScopeView {
    /// Scope id.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Directory of the scope.
    pub root: String,
    /// Id of the client that owns it.
    pub client: Option<String>,
    /// Status of its agent.
    pub status: AgentStatus,
    /// Reasons for the status, if the daemon set it.
    pub reasons: Vec<daemon::ReasonCode>,
    /// `open`, `closing` or `closed`.
    pub phase: ScopePhase,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// Milliseconds since it was last used.
    pub idle_ms: u64,
    /// Its resources; empty once it is closing.
    pub resources: Vec<ResourceView>,
    /// A scheduled close.
    pub closes: Option<AcceptedClose>,
}

/// Phase of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScopePhase {
    /// It accepts resources.
    Open,
    /// Its cleanup is running.
    Closing,
    /// Its cleanup is done.
    Closed,
}

impl Scope {
    /// An empty one, on the runtime that calls.
    pub fn new(spec: ScopeSpec, means: Arc<ScopeContext>) -> Result<Self, Error> {
        let id = random::id().map_err(Error::random)?;
        let mark = leftover::mark(&id);
        let scope = Self::made(id, spec, mark, means)?;
        let registry = scope.means.registry.as_ref();
        let record = registry.map(|it| Record::create(it, &scope.id, scope.client()));
        scope.state().record = record;
        scope.write_down(|wills| {
            let head = Head::new(&scope.id, &scope.spec, scope.mark.as_deref())?;
            wills.create(&head)
        });
        Ok(scope)
    }

    /// A scope left by a dead host: it holds what its journal lists. Its registry entry belongs to
    /// that host.
    fn inherited(will: Journal, means: Arc<ScopeContext>) -> Result<Self, Error> {
        let (spec, head) = (will.head.spec(), will.head);
        let scope = Self::made(head.scope, spec, head.mark, means)?;
        let next = will.entries.iter().map(|entry| entry.number + 1).max();
        let mut state = scope.state();
        state.next_number = next.unwrap_or(1);
        state.entries = Some(will.entries);
        drop(state);
        Ok(scope)
    }

    fn made(
        id: String,
        spec: ScopeSpec,
        mark: Option<String>,
        means: Arc<ScopeContext>,
    ) -> Result<Self, Error> {
        let root = match &means.roots {
            Some(roots) => ScopeRoot::in_roots(&spec.root, roots),
            None => ScopeRoot::new(&spec.root),
        };
        let root = root.map_err(refused)?;
        let archive = ArchivePlace::find(spec.archive_to.as_deref(), means.roots.as_ref());
        let archive = archive.map_err(|error| Error::Bad(error.to_string()))?;
        let runtime = Handle::try_current().map_err(|error| Error::Bad(error.to_string()))?;
        Ok(Self {
            mark,
            id,
            spec,
            root,
            archive,
            started_at: Timestamp::now(),
            born: Instant::now(),
            means,
            runtime,
            state: Mutex::new(State {
                entries: Some(Vec::new()),
                next_number: 1,
                status: AgentStatus::Running,
                reasons: Vec::new(),
                touched: Instant::now(),
                ticket: None,
                record: None,
            }),
            result: watch::Sender::new(None),
        })
    }

    /// Writes to its journal, if there is one. Errors are reported and stop nothing.
    fn write_down(&self, write: impl FnOnce(&Journals) -> std::io::Result<()>) {
        if let Some(wills) = &self.means.wills
            && let Err(error) = write(wills)
        {
            self.means.observer.tell(&ScopeEvent::Will {
                scope: self.id.clone(),
                error: error.to_string(),
            });
        }
    }

    /// The same for a resource.
    fn write_line(&self, line: Option<Line>) {
        if let Some(line) = line {
            self.write_down(|wills| wills.add(&self.id, &line));
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its client.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.spec.client.as_deref()
    }

    /// The directory of all its files.
    #[must_use]
    pub fn root(&self) -> &ScopeRoot {
        &self.root
    }

    /// Records that it was used.
    pub fn touch(&self) {
        self.state().touched = Instant::now();
    }

    /// Sets the status of its agent. The first final status stays: an agent that has completed does
    /// not fail later. False if the status was not accepted.
    pub fn set_status(&self, status: AgentStatus) -> bool {
        self.judge(status, Vec::new())
    }

    /// How its agent is.
    #[must_use]
    pub fn status(&self) -> AgentStatus {
        self.state().status
    }

    fn judge(&self, status: AgentStatus, reasons: Vec<daemon::ReasonCode>) -> bool {
        let mut state = self.state();
        let is_taken = !state.status.is_terminal();
        if is_taken {
            state.status = status;
            state.reasons = reasons;
        }
        is_taken
    }

    /// Closes it and returns the result. Later callers get the same result. If the caller
    /// disconnects, closing continues.
    pub async fn close(&self, why: CloseReason, how: CloseLimits) -> Arc<CleanUp> {
        self.begin_close(why, how);
        self.closed().await
    }

    /// Waits for the end of a close.
    pub async fn closed(&self) -> Arc<CleanUp> {
        let mut result = self.result.subscribe();
        loop {
            if let Some(clean_up) = result.borrow_and_update().clone() {
                return clean_up;
            }
            // The sender belongs to this scope and lives as long.
            if result.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Starts to close it. False if closing has already started.
    pub fn begin_close(&self, why: CloseReason, how: CloseLimits) -> bool {
        let (entries, record) = {
            let mut state = self.state();
            let Some(entries) = state.entries.take() else {
                return false;
            };
            (entries, state.record.take())
        };
        let subject = Subject {
            scope: self.id.clone(),
            name: self.spec.name.clone(),
            mark: self.mark.clone(),
        };
        let around = Around {
            how,
            why,
            means: Arc::clone(&self.means),
            root: self.root.clone(),
            archive: self.archive.clone(),
        };
        let (result, means) = (self.result.clone(), Arc::clone(&self.means));
        // Not awaited: it must finish even without a waiter. When the runtime ends it is dropped,
        // with everything in it.
        drop(self.runtime.spawn(async move {
            let work = closing::close(subject, entries, around, record);
            let clean_up = Arc::new(work.await);
            result.send_replace(Some(Arc::clone(&clean_up)));
            means.observer.tell(&ScopeEvent::Closed(clean_up));
        }));
        true
    }

    /// How far its life is.
    #[must_use]
    pub fn phase(&self) -> ScopePhase {
        if self.result.borrow().is_some() {
            ScopePhase::Closed
        } else if self.state().entries.is_none() {
            ScopePhase::Closing
        } else {
            ScopePhase::Open
        }
    }

    /// The result of the close, if it is done.
    #[must_use]
    pub fn result(&self) -> Option<Arc<CleanUp>> {
        self.result.borrow().clone()
    }

    /// Its entry in a list.
    #[must_use]
    pub fn view(&self) -> ScopeView {
        let phase = self.phase();
        let state = self.state();
        let entries = state.entries.iter().flatten();
        ScopeView {
            id: self.id.clone(),
            name: self.spec.name.clone(),
            root: self.root.path().display().to_string(),
            client: self.spec.client.clone(),
            status: state.status,
            reasons: state.reasons.clone(),
            phase,
            started_at: self.started_at.to_string(),
            idle_ms: millis(state.touched.elapsed()),
            resources: entries.map(Entry::view).collect(),
            closes: state.ticket.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.begin_close(CloseReason::OwnerGone, CloseLimits::default());
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
