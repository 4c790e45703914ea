//! One MCP client: its two sessions, opened on first use and closed with it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard};
use tokio_util::sync::CancellationToken;

use super::arguments::Kind;
use crate::Error;
use crate::host::{ClientGuard, Host};
use crate::receipt::{Receipt, SessionEndReason};
use crate::session::{Channel, SessionProgram, SessionSpec};

/// Wide enough that lines which people write are not broken.
const TERMINAL: Channel = Channel::Pty {
    columns: 160,
    rows: 50,
};

/// A client. Dropped, everything that it opened is closed.
#[derive(Debug)]
pub(super) struct Client {
    host: Host,
    output_cap: usize,
    /// There from the first use on.
    guard: Mutex<Option<ClientGuard>>,
    python: Slot,
    bash: Slot,
    /// Held while a `trace` or `check` runs.
    trial: AsyncMutex<()>,
    usage: Mutex<Usage>,
    /// Cancelled when the client is gone: running commands are interrupted.
    pub(super) gone: CancellationToken,
}

/// The id of a session, once there is one.
type Slot = AsyncMutex<Option<String>>;

#[derive(Debug)]
struct Usage {
    calls: usize,
    last: Instant,
}

/// A session to run something in.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: String,
    /// Why it is a new session.
    pub(super) renewed: Option<String>,
}

impl Client {
    pub(super) fn new(host: Host, output_cap: usize) -> Self {
        Self {
            host,
            output_cap,
            guard: Mutex::default(),
            python: Slot::default(),
            bash: Slot::default(),
            trial: AsyncMutex::default(),
            usage: Mutex::new(Usage {
                calls: 0,
                last: Instant::now(),
            }),
            gone: CancellationToken::new(),
        }
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    /// Starts a call of this client; it ends when the returned value is dropped.
    pub(super) fn call(&self) -> InCall<'_> {
        self.usage().calls += 1;
        InCall(self)
    }

    /// A turn to run a program under the tracer: one at a time, as in a session.
    pub(super) fn trial(&self) -> Result<AsyncMutexGuard<'_, ()>, Error> {
        let busy =
            |_| Error::Bad("busy: a trace or check of this client is still running".to_owned());
        self.trial.try_lock().map_err(busy)
    }

    /// Idle time; absent while a call runs.
    pub(super) fn idle_for(&self) -> Option<Duration> {
        let usage = self.usage();
        (usage.calls == 0).then(|| usage.last.elapsed())
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its session of this kind, if there is one.
    pub(super) async fn session(&self, kind: Kind) -> Option<String> {
        self.slot(kind).lock().await.clone()
    }

    /// Its session of this kind, opened if there is none or it has ended.
    pub(super) async fn open(&self, kind: Kind, name: Option<&str>) -> Result<Place, Error> {
        let mut slot = self.slot(kind).lock().await;
        let mut renewed = None;
        if let Some(id) = slot.as_ref() {
            match self.host.session(id) {
                Ok(_) => {
                    let id = id.clone();
                    return Ok(Place { id, renewed });
                }
                Err(error) => renewed = Some(error.to_string()),
            }
        }
        *slot = None;
        let client = self.id(name)?;
        let mut spec = SessionSpec::new(match kind {
            Kind::Python => SessionProgram::Python,
            Kind::Bash => SessionProgram::Bash,
        });
        spec.channel = TERMINAL;
        spec.output_cap = self.output_cap;
        let id = self.host.open(Some(&client), spec).await?;
        *slot = Some(id.clone());
        Ok(Place { id, renewed })
    }

    /// Forgets a session that has ended; the next use opens another.
    pub(super) async fn forget(&self, kind: Kind, id: &str) {
        let mut slot = self.slot(kind).lock().await;
        if slot.as_deref() == Some(id) {
            *slot = None;
        }
    }

    /// Ends everything, and waits for that.
    pub(super) async fn end(&self) -> Vec<Receipt> {
        self.gone.cancel();
        let guard = self.guard().take();
        let Some(guard) = guard else {
            return Vec::new();
        };
        let ended = self
            .host
            .end_client(guard.id(), SessionEndReason::ClientGone)
            .await;
        // It was already ended, by the host's shutdown.
        ended.unwrap_or_default()
    }

    fn slot(&self, kind: Kind) -> &Slot {
        match kind {
            Kind::Python => &self.python,
            Kind::Bash => &self.bash,
        }
    }

    /// Its client id in the host.
    fn id(&self, name: Option<&str>) -> Result<String, Error> {
        let mut guard = self.guard();
        if self.gone.is_cancelled() {
            return Err(Error::Closing);
        }
        if let Some(guard) = guard.as_ref() {
            return Ok(guard.id().to_owned());
        }
        let new = self.host.client_guard(Some(name.unwrap_or("mcp")))?;
        let id = new.id().to_owned();
        *guard = Some(new);
        Ok(id)
    }

    fn guard(&self) -> MutexGuard<'_, Option<ClientGuard>> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that runs.
#[derive(Debug)]
pub(super) struct InCall<'c>(&'c Client);

impl Drop for InCall<'_> {
    fn drop(&mut self) {
        let mut usage = self.0.usage();
        usage.calls -= 1;
        usage.last = Instant::now();
    }
}
