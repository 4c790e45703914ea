//! All sessions of all clients: limits, leases, the idle reaper, and a shutdown that closes
//! everything.

mod client;
mod close;
mod entry;
mod events;
mod health;
mod limits;
mod open;
mod options;
mod own;
mod reaper;
mod reconcile;
mod record;
mod room;
mod shut_down;
mod table;
mod warm;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use fdguard_core::log_event::LogEvent;
use fdguard_files::Registry;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use client::{ClientGuard, ClientInfo};
pub use events::Events;
pub use health::{HostHealth, HostStatus, SessionCounts};
pub use limits::{LimitKeeper, LimitKeepers};
pub use options::Options;
pub use reaper::ReaperHealth;
pub use reconcile::{ReconcileOutcome, RegistryFinding, reconcile};
pub use record::RegistryHealth;
pub use warm::WarmHealth;

use crate::Error;
use crate::receipt::Receipt;
use crate::session::{Chunk, Exec, ExecResult, Hub};
use entry::Entry;
use record::Record;
use room::Room;
use table::Table;
use warm::Warm;

/// The host. A clone is another handle to the same one.
#[derive(Clone, Debug)]
pub struct Host {
    inner: Arc<Inner>,
}

/// Shared by all handles.
#[derive(Debug)]
struct Inner {
    options: Options,
    hub: Arc<Hub>,
    table: Mutex<Table>,
    /// Notified whenever a slot was taken or released.
    changed: watch::Sender<()>,
    /// Notified whenever a lease starts to run.
    lease_begun: Notify,
    room: Room,
    /// Absent without a state directory, and after shutdown.
    record: Mutex<Option<Arc<Record>>>,
    reaper: watch::Sender<ReaperHealth>,
    warm: Warm,
    /// Tasks that the shutdown waits for.
    tasks: TaskTracker,
    stopped: CancellationToken,
    shut: watch::Sender<Option<Vec<Receipt>>>,
    started: Instant,
    runtime: Handle,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SessionInfo {
    /// Session id.
    pub id: String,
    /// Id of the client that owns it.
    pub client: Option<String>,
    /// `bash`, `python`, or the program's name.
    pub program: String,
    /// Process id of the program.
    pub pid: Option<u32>,
    /// Milliseconds since the running command started; `null` when none is running.
    pub busy_ms: Option<u64>,
    /// Milliseconds since its last command.
    pub idle_ms: u64,
    /// Start time, RFC 3339.
    pub started_at: String,
    /// What enforces each limit; `null` if the session has no limits or its program has ended.
    pub limits_kept_by: Option<LimitKeepers>,
}

impl Host {
    /// Starts it on the runtime that calls.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let room = Room::make(options.raise_limit, &options.events);
        let (record, reconciled) = match &options.state {
            Some(dir) => Some(Record::open(dir, &options.events).await?).unzip(),
            None => (None, None),
        };
        let inner = Arc::new(Inner {
            hub: Hub::open()?,
            table: Mutex::default(),
            changed: watch::Sender::default(),
            lease_begun: Notify::new(),
            room,
            record: Mutex::new(record),
            reaper: watch::Sender::default(),
            warm: Warm::new(),
            tasks: TaskTracker::new(),
            stopped: CancellationToken::new(),
            shut: watch::Sender::default(),
            started: Instant::now(),
            runtime: Handle::current(),
            options,
        });
        inner.tasks.spawn(Arc::clone(&inner).watch_leases());
        inner.tasks.spawn(Arc::clone(&inner).reap_idle());
        inner.tasks.spawn(Arc::clone(&inner).watch_limits());
        inner.tasks.spawn(Arc::clone(&inner).warm_up());
        let event = LogEvent::new("host_start").with("pid", std::process::id());
        inner.tell(event.with("max_sessions", inner.options.max_sessions));
        if !inner.hub.is_private() {
            let why = "no writable directory for the side channel: other users can send to it";
            inner.tell(LogEvent::new("side_channel_open").with("why", why));
        }
        if let Some(reconciled) = reconciled {
            inner.tell_reconciled(&reconciled);
        }
        Ok(Self { inner })
    }

    /// Whether the host's descriptor table has room for anything but a session: not above 90 % of
    /// the limit.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.inner.room.allows_one_more(0).is_ok()
    }

    /// The event subscriber.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.inner.options.events
    }

    /// The directory of its registry and its logs.
    #[must_use]
    pub fn state(&self) -> Option<&Path> {
        self.inner.options.state.as_deref()
    }

    /// Its registry, for resources other than sessions.
    #[must_use]
    pub fn registry(&self) -> Option<Registry> {
        Some(self.inner.record()?.registry())
    }

    /// Runs a command in a session.
    pub async fn exec(
        &self,
        id: &str,
        command: Exec,
        live: Option<mpsc::Sender<Chunk>>,
    ) -> Result<ExecResult, Error> {
        let entry = self.inner.entry(id)?;
        let _call = self.inner.call_for(entry.client.as_deref())?;
        let _inside = entry.enter()?;
        let answer = entry.session.exec(command, live).await;
        let done = limits::answer(&entry, answer)?;
        if done.was_reset && !entry.is_ending() {
            self.inner.was_reset(&entry, None).await;
        }
        Ok(done)
    }

    /// Interrupts the running command; false if there is none.
    pub async fn interrupt(&self, id: &str) -> Result<bool, Error> {
        let entry = self.inner.entry(id)?;
        let _call = self.inner.call_for(entry.client.as_deref())?;
        let _inside = entry.enter()?;
        let interrupted = entry.session.interrupt().await?;
        let event = LogEvent::new("session_interrupt").with("id", id);
        self.inner.tell(event.with("ran", interrupted));
        Ok(interrupted)
    }

    /// A new program in the same session.
    pub async fn reset(&self, id: &str) -> Result<Receipt, Error> {
        let entry = self.inner.entry(id)?;
        let _call = self.inner.call_for(entry.client.as_deref())?;
        let _inside = entry.enter()?;
        let receipt = entry.session.reset().await?;
        self.inner.was_reset(&entry, Some(&receipt)).await;
        Ok(receipt)
    }

    /// All sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let entries: Vec<_> = self.inner.table().entries().cloned().collect();
        entries.iter().map(|entry| entry.info()).collect()
    }

    /// One session.
    pub fn session(&self, id: &str) -> Result<SessionInfo, Error> {
        self.inner.entry(id).map(|entry| entry.info())
    }

    /// The live processes of a session, its program first. Reads files of the kernel.
    pub fn members(&self, id: &str) -> Result<Vec<u32>, Error> {
        Ok(self.inner.entry(id)?.session.members())
    }
}

impl Inner {
    /// Held for moments only: never across a wait.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> Option<Arc<Record>> {
        let record = self.record.lock();
        record.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A session has a new program.
    async fn was_reset(&self, entry: &Entry, receipt: Option<&Receipt>) {
        if let Some(record) = self.record() {
            record.moved(entry).await;
        }
        let event = LogEvent::new("session_reset").with("id", entry.id.as_str());
        let event = event.with("survivors", receipt.and_then(|receipt| receipt.survivors));
        self.tell(event.with("pid", entry.session.pid()));
    }

    fn tell(&self, event: LogEvent) {
        self.options.events.tell(&event);
    }

    /// Waits for as long as this holds of the table.
    async fn wait_while(&self, holds: impl Fn(&Table) -> bool) {
        let mut changed = self.changed.subscribe();
        while holds(&self.table()) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}
