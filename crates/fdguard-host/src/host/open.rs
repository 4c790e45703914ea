//! Opens a session: reserves a slot first, then starts the program. A failed or cancelled open
//! releases the slot.

use std::sync::Arc;

use fdguard_core::log_event::LogEvent;
use fdguard_process::random;
use tokio::task::JoinHandle;

use super::client::unknown;
use super::entry::{Entry, name};
use super::table::Place;
use super::{Host, Inner};
use crate::Error;
use crate::receipt::SessionEndReason;
use crate::session::{Session, SessionSpec};

impl Host {
    /// Opens a session and returns its id. At the limit, dead sessions and then sessions past their
    /// idle time are evicted; no others.
    pub async fn open(&self, client: Option<&str>, spec: SessionSpec) -> Result<String, Error> {
        let inner = Arc::clone(&self.inner);
        let client = client.map(str::to_owned);
        let opening = Arc::clone(&inner).open(client, spec);
        let mut wanted = SessionRequest {
            opening: Some(inner.tasks.spawn_on(opening, &inner.runtime)),
            inner,
        };
        wanted.opened().await
    }
}

/// A session that a caller waits for. If the caller disconnects, its id is lost: it is closed.
struct SessionRequest {
    opening: Option<JoinHandle<Result<String, Error>>>,
    inner: Arc<Inner>,
}

impl SessionRequest {
    async fn opened(&mut self) -> Result<String, Error> {
        let Some(opening) = &mut self.opening else {
            return Err(Error::Closing);
        };
        let opened = opening.await;
        self.opening = None;
        opened.unwrap_or_else(|error| Err(Error::io("cannot open a session")(error.into())))
    }
}

impl Drop for SessionRequest {
    fn drop(&mut self) {
        let Some(opening) = self.opening.take() else {
            return;
        };
        let inner = Arc::clone(&self.inner);
        let abandon = async move {
            let Ok(Ok(id)) = opening.await else { return };
            if let Ok(entry) = inner.entry(&id) {
                inner.begin_end(&entry, SessionEndReason::ClientGone);
            }
        };
        self.inner.tasks.spawn_on(abandon, &self.inner.runtime);
    }
}

impl Inner {
    async fn open(
        self: Arc<Self>,
        client: Option<String>,
        spec: SessionSpec,
    ) -> Result<String, Error> {
        let call = self.call_for(client.as_deref())?;
        let place = self.take_place(client.clone()).await?;
        let about = (name(&spec.program), spec.limits);
        let session = match Session::start_warm(&place.id, spec, &self.hub, self.pool()).await {
            Ok(session) => session,
            Err(error) => {
                let event = LogEvent::new("session_start_failed")
                    .with("id", place.id.as_str())
                    .with("client", client)
                    .with("program", about.0)
                    .with("code", error.code())
                    .with("error", error.to_string());
                self.tell(event);
                return Err(error);
            }
        };
        let entry = Arc::new(Entry::new(place.id.clone(), client, about, session));
        if let Some(record) = self.record() {
            record.add(&entry).await;
        }
        drop(call);
        self.settle_in(place, entry).await
    }

    /// The session takes its reserved slot, unless host or client ended meanwhile: then it is
    /// closed.
    async fn settle_in(
        self: &Arc<Self>,
        mut place: KeptPlace,
        entry: Arc<Entry>,
    ) -> Result<String, Error> {
        place.is_settled = true;
        let refused = {
            let mut table = self.table();
            let taken = Place::Taken(Arc::clone(&entry));
            table.places.insert(entry.id.clone(), taken);
            let client = entry.client.as_deref();
            let gone = client.filter(|client| !table.clients.contains_key(*client));
            match gone {
                _ if table.is_closing => Some((Error::Closing, SessionEndReason::Shutdown)),
                Some(gone) => Some((unknown(gone), SessionEndReason::ClientGone)),
                None => None,
            }
        };
        self.changed.send_modify(|()| {});
        let event = LogEvent::new("session_open")
            .with("id", entry.id.as_str())
            .with("client", entry.client.as_deref())
            .with("program", entry.program.as_str());
        self.tell(event.with("pid", entry.session.pid()));
        if let Some((error, reason)) = refused {
            self.end(&entry, reason).await;
            return Err(error);
        }
        let watch = Arc::clone(self).watch_end(Arc::clone(&entry));
        self.tasks.spawn_on(watch, &self.runtime);
        Ok(entry.id.clone())
    }

    /// Releases a session as soon as its program has ended.
    async fn watch_end(self: Arc<Self>, entry: Arc<Entry>) {
        tokio::select! {
            () = entry.session.ended() => {}
            () = entry.end_begins() => return,
        }
        // The command during which it ended still gets its answer.
        let answered = tokio::time::timeout(self.options.close_within, entry.unused());
        let _or_not = answered.await;
        self.begin_end(&entry, SessionEndReason::ProgramEnded);
    }

    /// Reserves a slot in one step with the check whether one is free.
    async fn take_place(self: &Arc<Self>, client: Option<String>) -> Result<KeptPlace, Error> {
        let id = random::id().map_err(Error::random)?;
        loop {
            let gives_way = {
                let mut table = self.table();
                if table.is_closing {
                    return Err(Error::Closing);
                }
                if table.places.len() < self.options.max_sessions {
                    self.room.allows_one_more(table.opening())?;
                    table.places.insert(id.clone(), Place::Opening { client });
                    let inner = Arc::clone(self);
                    return Ok(KeptPlace {
                        inner,
                        id,
                        is_settled: false,
                    });
                }
                table.gives_way(self.options.idle_after)
            };
            let made = match gives_way {
                Some(entry) => self.make_way(&entry).await,
                None => false,
            };
            if !made {
                return Err(Error::Full {
                    what: "sessions",
                    count: self.options.max_sessions,
                });
            }
        }
    }

    /// Evicts a session, unless a call came in between; the next attempt then finds another one, or
    /// none. False if closing takes too long.
    async fn make_way(self: &Arc<Self>, entry: &Arc<Entry>) -> bool {
        let reason = if entry.is_dead() {
            SessionEndReason::ProgramEnded
        } else {
            SessionEndReason::Evicted
        };
        if !self.begin_end_unused(entry, reason) && !entry.is_ending() {
            return true;
        }
        let gone = self.wait_while(|table| table.places.contains_key(&entry.id));
        let gone = tokio::time::timeout(self.options.close_within, gone).await;
        gone.is_ok()
    }
}

/// A slot reserved for a session that is being started; drop releases it.
struct KeptPlace {
    inner: Arc<Inner>,
    id: String,
    is_settled: bool,
}

impl Drop for KeptPlace {
    fn drop(&mut self) {
        if !self.is_settled {
            self.inner.table().places.remove(&self.id);
            self.inner.changed.send_modify(|()| {});
        }
    }
}
