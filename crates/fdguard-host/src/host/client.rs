//! Clients and their leases: everything a client opened ends with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::log_event::LogEvent;
use fdguard_process::random;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use super::entry::{Entry, word};
use super::table::Place;
use super::{Host, Inner};
use crate::Error;
use crate::receipt::{Receipt, SessionEndReason};

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    name: Option<String>,
    lease: Option<Duration>,
    renewed: Instant,
    /// Calls in progress for it: while there are any, its lease does not expire.
    calls: usize,
}

impl Client {
    /// When its lease expires; `None` if it does not.
    fn runs_out(&self) -> Option<Instant> {
        let lease = self.lease.filter(|_| self.calls == 0)?;
        self.renewed.checked_add(lease)
    }
}

/// A client.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ClientInfo {
    /// Client id.
    pub id: String,
    /// Name the client gave itself.
    pub name: Option<String>,
    /// Length of the lease; `null` if it does not expire.
    pub lease_ms: Option<u64>,
    /// Time left on the lease; `null` if it does not expire, or while one of its calls is running.
    pub left_ms: Option<u64>,
    /// Number of open sessions.
    pub sessions: usize,
}

impl Host {
    /// Registers a client with a lease: all its sessions end when the lease expires or is ended.
    /// Without a duration it does not expire. Every call for one of its sessions renews the lease,
    /// and it does not expire while a call runs.
    pub fn client(&self, name: Option<&str>, lease: Option<Duration>) -> Result<String, Error> {
        let id = random::id().map_err(Error::random)?;
        let client = Client {
            name: name.map(str::to_owned),
            lease,
            renewed: Instant::now(),
            calls: 0,
        };
        {
            let mut table = self.inner.table();
            if table.is_closing {
                return Err(Error::Closing);
            }
            table.clients.insert(id.clone(), client);
        }
        self.inner.lease_begun.notify_one();
        let event = LogEvent::new("client_open").with("client", id.as_str());
        let event = event.with("name", name);
        let event = event.with("lease_ms", lease.map(ms));
        self.inner.tell(event);
        Ok(id)
    }

    /// A client that lives as long as the returned guard: for a connection.
    pub fn client_guard(&self, name: Option<&str>) -> Result<ClientGuard, Error> {
        let id = self.client(name, None)?;
        Ok(self.guard(id))
    }

    /// The same for an existing client: when the returned guard is dropped, the client ends.
    pub fn attach_client(&self, client: &str) -> Result<ClientGuard, Error> {
        self.renew(client)?;
        Ok(self.guard(client.to_owned()))
    }

    fn guard(&self, id: String) -> ClientGuard {
        let host = self.clone();
        ClientGuard { id, host }
    }

    /// Renews a client's lease.
    pub fn renew(&self, client: &str) -> Result<(), Error> {
        let mut table = self.inner.table();
        let found = table.clients.get_mut(client);
        found.ok_or_else(|| unknown(client))?.renewed = Instant::now();
        // A waiter wakes at the old deadline and checks again.
        Ok(())
    }

    /// Ends a client's lease: its sessions are closed.
    pub async fn end_client(
        &self,
        client: &str,
        reason: SessionEndReason,
    ) -> Result<Vec<Receipt>, Error> {
        self.inner.end_client(client, reason).await
    }

    /// All clients.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientInfo> {
        let table = self.inner.table();
        let now = Instant::now();
        let info = |(id, client): (&String, &Client)| ClientInfo {
            id: id.clone(),
            name: client.name.clone(),
            lease_ms: client.lease.map(ms),
            left_ms: client
                .runs_out()
                .map(|end| ms(end.saturating_duration_since(now))),
            sessions: table.places_of(id),
        };
        table.clients.iter().map(info).collect()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn unknown(client: &str) -> Error {
    Error::Unknown {
        what: "client",
        id: client.to_owned(),
    }
}

impl Inner {
    /// A call for a client: its lease is renewed now and when the call returns.
    pub(super) fn call_for(
        self: &Arc<Self>,
        client: Option<&str>,
    ) -> Result<Option<ClientCall>, Error> {
        let Some(client) = client else {
            return Ok(None);
        };
        let mut table = self.table();
        let found = table.clients.get_mut(client);
        let found = found.ok_or_else(|| unknown(client))?;
        found.renewed = Instant::now();
        found.calls += 1;
        drop(table);
        Ok(Some(ClientCall {
            inner: Arc::clone(self),
            client: client.to_owned(),
        }))
    }

    pub(super) async fn end_client(
        self: &Arc<Self>,
        client: &str,
        reason: SessionEndReason,
    ) -> Result<Vec<Receipt>, Error> {
        // From here on a session that is being opened for it finds no client, and closes again.
        let removed = self.table().clients.remove(client);
        removed.ok_or_else(|| unknown(client))?;
        Ok(self.client_gone(client, reason).await)
    }

    /// Closes the sessions of a removed client.
    async fn client_gone(self: &Arc<Self>, client: &str, reason: SessionEndReason) -> Vec<Receipt> {
        let its = |entry: &&Arc<Entry>| entry.client.as_deref() == Some(client);
        let entries: Vec<_> = self.table().entries().filter(its).cloned().collect();
        let event = LogEvent::new("client_gone").with("client", client);
        let event = event.with("reason", word(reason));
        self.tell(event.with("sessions", entries.len()));
        // The caller may disconnect: closing continues.
        for entry in &entries {
            self.begin_end(entry, reason);
        }
        let ends = entries.iter().map(|entry| self.end(entry, reason));
        let receipts = join_all(ends).await;
        self.wait_while(|table| {
            let is_its = |place: &Place| matches!(place, Place::Opening { client: Some(of) } if of == client);
            table.places.values().any(is_its)
        })
        .await;
        receipts
    }

    /// Ends clients whose leases expired, for as long as the host runs.
    pub(super) async fn watch_leases(self: Arc<Self>) {
        loop {
            let next = {
                let table = self.table();
                table.clients.values().filter_map(Client::runs_out).min()
            };
            let run_out = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = run_out => {}
                () = self.lease_begun.notified() => continue,
                () = self.stopped.cancelled() => return,
            }
            for client in self.remove_run_out(Instant::now()) {
                let inner = Arc::clone(&self);
                self.tasks.spawn(async move {
                    inner
                        .client_gone(&client, SessionEndReason::ClientGone)
                        .await;
                });
            }
        }
    }

    /// Atomic, so that no renewal comes between the check and the removal.
    fn remove_run_out(&self, now: Instant) -> Vec<String> {
        let is_over = |client: &Client| client.runs_out().is_some_and(|end| end <= now);
        let mut table = self.table();
        let over = table.clients.iter().filter(|(_, client)| is_over(client));
        let over: Vec<String> = over.map(|(id, _)| id.clone()).collect();
        table.clients.retain(|_, client| !is_over(client));
        over
    }
}

/// A call in progress for a client; drop ends it.
#[derive(Debug)]
pub(super) struct ClientCall {
    inner: Arc<Inner>,
    client: String,
}

impl Drop for ClientCall {
    fn drop(&mut self) {
        if let Some(client) = self.inner.table().clients.get_mut(&self.client) {
            client.calls -= 1;
            client.renewed = Instant::now();
        }
        // The lease runs again: its expiry must be awaited.
        self.inner.lease_begun.notify_one();
    }
}

/// Ends a client with all its sessions when it is dropped: for a connection.
#[derive(Debug)]
pub struct ClientGuard {
    id: String,
    host: Host,
}

impl ClientGuard {
    /// The client's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Drop for ClientGuard {
    fn drop(&mut self) {
        let (inner, id) = (Arc::clone(&self.host.inner), self.id.clone());
        let tasks = self.host.inner.tasks.clone();
        // Not `tokio::spawn`: the drop may happen outside of the runtime.
        tasks.spawn_on(
            async move {
                // It may already have ended.
                let _ended = inner.end_client(&id, SessionEndReason::ClientGone).await;
            },
            &self.host.inner.runtime,
        );
    }
}
