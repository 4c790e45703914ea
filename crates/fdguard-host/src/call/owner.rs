//! The owner of a call: only it drives and closes the connection.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;

use super::abort::AbortHandle;
use super::caller::Inner;
use super::event::{CallEvent, CallEventKind, ThreadLabel};
use super::exchange::{Conn, is_whole};
use super::failure::CallFailure;
use super::limits::{Limits, watch};
use super::request::{CallResponse, Ready};
use super::sse;
use super::state::{CallInfo, CallPhase, State};

type Answer = Pin<Box<dyn Future<Output = hyper::Result<http::Response<Incoming>>> + Send>>;

/// An interruptible request. Dropped, its connection is closed; after a whole answer it is kept for
/// the next call.
///
/// Its methods can be left at any moment (in a `select!`) and called again.
pub struct Call {
    caller: Arc<Inner>,
    number: u64,
    state: Arc<State>,
    request: Ready,
    stage: Stage,
    head: Option<CallResponse>,
    failure: Option<CallFailure>,
    ended: Option<CallEnd>,
    is_reused: bool,
    /// The end of the body was reached.
    is_whole: bool,
    events: sse::SseReader,
    read: VecDeque<sse::SseMessage>,
}

enum Stage {
    New,
    Asked(Box<Conn>, Answer),
    Body(Box<Conn>, Incoming),
    Over,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallEnd {
    /// All of the answer was read.
    pub is_whole: bool,
    /// The connection was kept for the next call.
    pub is_kept: bool,
    /// The connection had served an earlier call.
    pub is_reused: bool,
    /// Bytes of HTTP, without the overhead of TLS.
    pub bytes_in: u64,
    /// Bytes of HTTP, without the overhead of TLS.
    pub bytes_out: u64,
    /// Time since its start.
    pub took: Duration,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Call {
    pub(super) fn new(caller: Arc<Inner>, number: u64, state: Arc<State>, request: Ready) -> Self {
        Self {
            caller,
            number,
            state,
            request,
            stage: Stage::New,
            head: None,
            failure: None,
            ended: None,
            is_reused: false,
            is_whole: false,
            events: sse::SseReader::default(),
            read: VecDeque::new(),
        }
    }

    /// A handle that can abort the call.
    #[must_use]
    pub fn handle(&self) -> AbortHandle {
        AbortHandle {
            state: Arc::clone(&self.state),
        }
    }

    /// Current state of the call.
    #[must_use]
    pub fn info(&self) -> CallInfo {
        self.state.info()
    }

    /// Its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.state.id
    }

    /// Sends the request and waits for the head of the answer. Redirects are answers like any
    /// other.
    pub async fn response(&mut self) -> Result<CallResponse, CallFailure> {
        if let Some(head) = &self.head {
            return Ok(head.clone());
        }
        loop {
            match self.step_to_head().await {
                Ok(head) => return Ok(head),
                Err(failure) if self.may_try_again(&failure) => {
                    self.stage = Stage::New;
                    self.is_reused = false;
                }
                Err(failure) => return Err(self.fail(failure)),
            }
        }
    }

    /// The next piece of the body; `None` at its end, when the connection has been returned to the
    /// pool or closed.
    pub async fn chunk(&mut self) -> Result<Option<Vec<u8>>, CallFailure> {
        if self.head.is_none() {
            self.response().await?;
        }
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let Stage::Body(conn, body) = &mut self.stage else {
            return Ok(None);
        };
        let limits = Limits::new(&self.request, &self.state, Some(conn.meter()));
        let piece = watch(&self.state, &limits, conn.piece(body)).await;
        match piece
            .and_then(|piece| piece.map_err(|error| CallFailure::of_http(&error, CallPhase::Body)))
        {
            Ok(Some(bytes)) => {
                // The end is often known with the last piece: then no further call is needed to
                // return the connection.
                if is_whole(body) {
                    self.is_whole = true;
                    self.end(None);
                }
                Ok(Some(Vec::from(bytes)))
            }
            Ok(None) => {
                self.is_whole = true;
                self.end(None);
                Ok(None)
            }
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// The whole body, up to `max` bytes; a larger one ends the call.
    pub async fn collect(&mut self, max: usize) -> Result<Vec<u8>, CallFailure> {
        let mut all = Vec::new();
        while let Some(piece) = self.chunk().await? {
            if all.len() + piece.len() > max {
                return Err(self.fail(CallFailure::TooLarge { max }));
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// The next server-sent event; `None` at the end of the body.
    pub async fn event(&mut self) -> Result<Option<sse::SseMessage>, CallFailure> {
        loop {
            if let Some(message) = self.read.pop_front() {
                return Ok(Some(message));
            }
            let Some(bytes) = self.chunk().await? else {
                return Ok(None);
            };
            match self.events.feed(&bytes) {
                Ok(messages) => self.read.extend(messages),
                Err(sse::TooLong(max)) => return Err(self.fail(CallFailure::TooLarge { max })),
            }
        }
    }

    /// Ends the call. Does not wait for an unread body: the connection is then closed.
    pub fn finish(mut self) -> CallEnd {
        self.end(None);
        self.ended.clone().unwrap_or(CallEnd {
            is_whole: false,
            is_kept: false,
            is_reused: self.is_reused,
            bytes_in: 0,
            bytes_out: 0,
            took: self.state.age(),
        })
    }

    async fn step_to_head(&mut self) -> Result<CallResponse, CallFailure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if matches!(self.stage, Stage::New) {
            let mut conn = self.connection().await?;
            self.state.enter(CallPhase::Send);
            let answer = conn.send(&self.request);
            self.stage = Stage::Asked(Box::new(conn), answer);
        }
        let Stage::Asked(conn, answer) = &mut self.stage else {
            return Err(CallFailure::Bad("the call has ended".to_owned()));
        };
        let limits = Limits::new(&self.request, &self.state, Some(conn.meter()));
        let result = watch(&self.state, &limits, conn.head(answer)).await?;
        let (head, body) =
            result.map_err(|error| CallFailure::of_http(&error, self.state.phase()))?;
        self.state.enter(CallPhase::Body);
        if let Stage::Asked(conn, _) = std::mem::replace(&mut self.stage, Stage::Over) {
            self.is_whole = is_whole(&body);
            self.stage = Stage::Body(conn, body);
            self.head = Some(head.clone());
            if self.is_whole {
                self.end(None);
            }
        }
        Ok(head)
    }

    /// An idle connection, or a new one.
    async fn connection(&mut self) -> Result<Conn, CallFailure> {
        if let Some(failure) = self.state.aborted() {
            return Err(failure);
        }
        if let Some(parked) = self.caller.pool.checkout(&self.request.origin) {
            self.is_reused = true;
            return parked.serve(&self.state);
        }
        let limits = Limits::new(&self.request, &self.state, None);
        let by = limits.next().map(|(at, ..)| at);
        let open = self
            .caller
            .connector
            .open(&self.request.origin, &self.state, by);
        watch(&self.state, &limits, open).await?
    }

    /// The peer may have closed an idle connection just when it was taken. If no answer arrived and
    /// the request may be sent twice, it is sent again, once.
    fn may_try_again(&self, failure: &CallFailure) -> bool {
        let nothing_came = match &self.stage {
            Stage::Asked(conn, _) => conn.meter().counts().0 == 0,
            _ => false,
        };
        let is_end = matches!(failure, CallFailure::ClosedEarly { .. });
        self.is_reused && nothing_came && is_end && self.request.is_repeatable()
    }

    fn fail(&mut self, failure: CallFailure) -> CallFailure {
        // An abort is why, whatever layer saw it first.
        let failure = self.state.aborted().unwrap_or(failure);
        let failure = self.failure.get_or_insert(failure).clone();
        self.end(Some(&failure));
        failure
    }

    /// The one place where a call ends. The owner closes its socket here or returns it to the pool.
    fn end(&mut self, failure: Option<&CallFailure>) {
        if self.ended.is_some() {
            return;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Over);
        let mut conn = match stage {
            Stage::Body(conn, _) | Stage::Asked(conn, _) => Some(conn),
            Stage::New | Stage::Over => None,
        };
        let is_whole = self.is_whole && failure.is_none();
        let keep = is_whole && conn.as_mut().is_some_and(|conn| conn.is_reusable());
        let had_connection = conn.is_some();
        let over = self.state.conclude(keep);
        let parked = match (conn, over.spare) {
            (Some(conn), Some(spare)) => conn.park(spare),
            // Here the owner closes.
            _ => None,
        };
        let is_kept =
            parked.is_some_and(|parked| self.caller.pool.put(self.request.origin.clone(), parked));
        let took = self.state.age();
        let (bytes_in, bytes_out) = over.counts;
        self.ended = Some(CallEnd {
            is_whole,
            is_kept,
            is_reused: self.is_reused,
            bytes_in,
            bytes_out,
            took,
        });
        let mut event = CallEvent::new(
            CallEventKind::Ended,
            Some(self.state.id.clone()),
            over.phase,
            took.as_secs_f64() * 1e3,
        );
        event.connection = had_connection.then_some(if is_kept { "kept" } else { "closed" });
        event.failure = failure.map(CallFailure::code);
        if let Some(abort) = over.abort {
            event.tcp_force_closed = Some(abort.sockets);
            event.deferred_close = Some(stranger(&abort.by, &event.by));
            event.reason = Some(abort.reason);
            event.aborted_by = Some(abort.by);
        }
        self.caller.tell(&event);
        self.caller.strike(self.number, &self.state.id);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.end(None);
    }
}

fn stranger(aborted_by: &ThreadLabel, closed_by: &ThreadLabel) -> &'static str {
    if aborted_by.id == closed_by.id {
        "stranger_task"
    } else {
        "stranger_thread"
    }
}
