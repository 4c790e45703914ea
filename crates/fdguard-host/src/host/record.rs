//! Registry entries of a host: one for the host and one per session, so that the next host knows
//! what this one had.
//!
//! All registry access blocks and runs on a blocking thread. A failing registry stops no session,
//! because the keepers end them anyway. The failure is logged and shown in the health document.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fdguard_core::log_event::LogEvent;
use fdguard_files::registry::{Claim, Kind, NewRow, Owner, Registry, RowChange, RowEnd};
use fdguard_proc::ProcessId;
use fdguard_proc::process::Liveness;
use fdguard_process::random;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::Events;
use super::entry::{Entry, word};
use super::reconcile::{self, ReconcileOutcome};
use crate::Error;
use crate::receipt::{Receipt, SessionEndReason};

/// Older ended entries are removed.
const KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The registry file in the state directory.
pub(super) const FILE: &str = "registry.db";

/// State of the registry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegistryHealth {
    /// Number of changes that could not be written.
    pub errors: u64,
    /// The most recent write error.
    pub last_error: Option<String>,
    /// When the entries were last compared with the running processes, RFC 3339.
    pub reconciled_at: Option<String>,
}

/// An open registry with the host's own entry.
#[derive(Debug)]
pub(super) struct Record {
    registry: Registry,
    /// This host, as an owner of closes.
    owner: Owner,
    events: Events,
    health: Mutex<RegistryHealth>,
}

impl Record {
    /// The same registry, for resources other than sessions.
    pub(super) fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Opens the registry, compares it with the running processes, and adds the host's own entry.
    pub(super) async fn open(
        dir: &Path,
        events: &Events,
    ) -> Result<(Arc<Self>, ReconcileOutcome), Error> {
        let (dir, events) = (dir.to_owned(), events.clone());
        let opened = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&dir)
                .map_err(Error::io("cannot create the state directory"))?;
            let own =
                ProcessId::current().map_err(Error::io("cannot read the host's own process"))?;
            let name = format!("host-{}", random::id().map_err(Error::random)?);
            let registry = Registry::open(&dir.join(FILE))?;
            let mut new = NewRow::now(name.as_str(), Kind::Host);
            new.process = Some(own.clone());
            registry.add(new)?;
            let process = own;
            Ok(Self {
                registry,
                owner: Owner { name, process },
                events,
                health: Mutex::default(),
            })
        });
        let record = Arc::new(opened.await.unwrap_or_else(|error| Err(failed(error)))?);
        let reconciled = record.reconcile(false).await?;
        Ok((record, reconciled))
    }

    /// A session that runs from now on.
    pub(super) async fn add(self: &Arc<Self>, entry: &Entry) {
        let mut new = NewRow::now(entry.id.as_str(), Kind::Session);
        new.client.clone_from(&entry.client);
        new.host = Some(self.owner.process.clone());
        new.started_at = entry.started_at;
        new.process = identity_of(|| entry.session.pid());
        new.keeper = identity_of(|| entry.session.keeper());
        self.note(move |registry| registry.add(new)).await;
    }

    /// A session has a new process.
    pub(super) async fn moved(self: &Arc<Self>, entry: &Entry) {
        let id = entry.id.clone();
        let change = RowChange {
            process: identity_of(|| entry.session.pid()),
            keeper: identity_of(|| entry.session.keeper()),
            ..RowChange::default()
        };
        self.note(move |registry| {
            let Some(row) = registry.get(&id)? else {
                return Ok(());
            };
            registry.update(&id, row.version, change).map(|_| ())
        })
        .await;
    }

    /// The right to close a session. `None` if the registry does not grant it: the session is
    /// closed anyway.
    pub(super) async fn claim(self: &Arc<Self>, id: &str) -> Option<Claim> {
        let (id, owner) = (id.to_owned(), self.owner.clone());
        self.note(move |registry| registry.begin_closing(&id, &owner))
            .await
    }

    /// A session has ended.
    pub(super) async fn finish(self: &Arc<Self>, claim: Claim, receipt: &Receipt) {
        let end = if receipt.clean {
            RowEnd::Closed
        } else {
            RowEnd::Failed
        };
        let reason = word(receipt.reason);
        let receipt = serde_json::to_value(receipt).ok();
        self.note(move |registry| registry.finish(&claim, end, reason, receipt))
            .await;
    }

    /// The host has ended. The file is closed with the last handle.
    pub(super) async fn close(self: Arc<Self>) {
        let owner = self.owner.clone();
        self.note(move |registry| {
            let claim = registry.begin_closing(&owner.name, &owner)?;
            registry.finish(
                &claim,
                RowEnd::Closed,
                word(SessionEndReason::Shutdown),
                None,
            )
        })
        .await;
        // The last handle waits for the thread that keeps the file.
        let dropped = tokio::task::spawn_blocking(move || drop(self));
        let _or_late = dropped.await;
    }

    /// Compares the entries with the processes, and kills what a dead host left behind.
    pub(super) async fn reconcile(
        self: &Arc<Self>,
        dry_run: bool,
    ) -> Result<ReconcileOutcome, Error> {
        let this = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let now = Timestamp::now();
            let done = reconcile::run(&this.registry, now, dry_run)?;
            if !dry_run {
                this.registry.forget(now - KEPT)?;
                this.health().reconciled_at = Some(now.to_string());
            }
            Ok(done)
        });
        let done = work.await.unwrap_or_else(|error| Err(failed(error)));
        if let Err(error) = &done {
            self.failed(error);
        }
        done
    }

    /// The state of the registry.
    pub(super) fn seen(&self) -> RegistryHealth {
        self.health().clone()
    }

    fn health(&self) -> std::sync::MutexGuard<'_, RegistryHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &Error) {
        let text = error.to_string();
        let event = LogEvent::new("registry_error").with("error", text.as_str());
        self.events.tell(&event);
        let mut health = self.health();
        health.errors += 1;
        health.last_error = Some(text);
    }

    /// Changes something; a failure is kept.
    async fn note<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Registry) -> Result<T, fdguard_files::registry::Error> + Send + 'static,
    ) -> Option<T> {
        let this = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || change(&this.registry));
        match changed.await.map_err(failed) {
            Ok(Ok(changed)) => return Some(changed),
            Ok(Err(error)) => self.failed(&error.into()),
            Err(error) => self.failed(&error),
        }
        None
    }
}

/// The process of a session; absent if it is just ending, because its pid may already be reused.
fn identity_of(pid: impl Fn() -> Option<u32>) -> Option<ProcessId> {
    let named = pid()?;
    let identity = ProcessId::read(named).ok()?;
    (pid() == Some(named)).then_some(identity)
}

fn failed(error: tokio::task::JoinError) -> Error {
    Error::io("cannot use the registry")(error.into())
}

/// Whether a host still keeps it.
pub(super) fn is_kept(host: Option<&ProcessId>) -> bool {
    host.is_some_and(|host| host.liveness() != Liveness::Gone)
}
