//! Commands: the result as one document, or the output as a stream. Disconnecting interrupts the
//! command.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::pieces::Pieces;
use super::sessions::within;
use crate::Error;
use crate::document::Document;
use crate::http::accept::{self, EVENTS, JSON};
use crate::http::api::Api;
use crate::http::body;
use crate::http::route::{self, ApiRequest, Route};
use crate::session::{Chunk, Exec, ExecResult};
use fdguard_http::Problem;

const SCHEMA: &str = "fdguard.exec/1";
/// Pieces of output that wait for a slow receiver before the program has to.
const WAITING: usize = 64;
/// A day.
const LONGEST: u64 = 86_400_000;
/// Errors are returned within this time; a command that is silent for longer starts its stream
/// without output.
const REFUSED_WITHIN: Duration = Duration::from_millis(100);
/// A sign of life while a command is silent.
const SILENCE: Duration = Duration::from_secs(15);

/// A command to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewExec {
    /// Code to run; may have several lines.
    code: String,
    /// Milliseconds until the command is interrupted; default 60000.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let events = "An `output` event {stream, text or base64} for each piece of output, then `done` with the result, or `problem` on failure";
    vec![
        Route::raw((Method::POST, "/v1/sessions/{id}/exec"), "exec", exec)
            .summary("Run a command and wait for it. Disconnecting interrupts it.")
            .takes::<NewExec>()
            .gives::<ExecResult>(StatusCode::OK, SCHEMA)
            .gives_other(EVENTS, events)
            .example(json!({"code": "echo hello", "timeout_ms": 5000}))
            .refuses(&[404, 409, 410]),
    ]
}

async fn exec(asked: ApiRequest, bytes: bytes::Bytes) -> Result<Response, Problem> {
    let body: NewExec = body::decode(&asked.headers, &bytes)?;
    let mut command = Exec::new(body.code);
    if let Some(ms) = body.timeout_ms {
        let ms = within(ms, 1, LONGEST, "timeout_ms")?;
        command.timeout = Duration::from_millis(ms);
    }
    let is_live = accept::negotiate(&asked.headers, &[JSON, EVENTS])? == EVENTS;
    let id = asked.id().to_owned();
    if !is_live {
        let done = Running::start(&asked.api, id, command, None).done().await?;
        return route::document(StatusCode::OK, SCHEMA, done);
    }
    let (sender, chunks) = mpsc::channel(WAITING);
    let running = Running::start(&asked.api, id, command, Some(sender));
    let live = Live::start(running, chunks).await?;
    let keep = KeepAlive::new().interval(SILENCE);
    Ok(Sse::new(events(live)).keep_alive(keep).into_response())
}

/// A command running in its own task. Dropping it interrupts the command: its caller is gone.
struct Running {
    done: oneshot::Receiver<Result<ExecResult, Error>>,
    _abandoned: DropGuard,
}

impl Running {
    fn start(api: &Arc<Api>, id: String, command: Exec, live: Option<mpsc::Sender<Chunk>>) -> Self {
        let (sender, done) = oneshot::channel();
        let abandoned = CancellationToken::new();
        let guard = abandoned.clone().drop_guard();
        let api = Arc::clone(api);
        // Its result arrives through the channel.
        drop(tokio::spawn(async move {
            let ended = run(&api, &id, command, live, &abandoned).await;
            // If the receiver is gone, the result is dropped.
            drop(sender.send(ended));
        }));
        Self {
            done,
            _abandoned: guard,
        }
    }

    async fn done(&mut self) -> Result<ExecResult, Error> {
        // The task ends without a result only when the runtime does.
        (&mut self.done).await.unwrap_or(Err(Error::Closing))
    }
}

/// Runs the command. If it is abandoned, it is interrupted, and its end is still awaited, so that
/// the session is free afterwards.
async fn run(
    api: &Api,
    id: &str,
    command: Exec,
    live: Option<mpsc::Sender<Chunk>>,
    abandoned: &CancellationToken,
) -> Result<ExecResult, Error> {
    let mut work = std::pin::pin!(api.host.exec(id, command, live));
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = abandoned.cancelled() => api.counts.abandoned.add(),
    }
    let (done, _interrupted) = tokio::join!(work, api.host.interrupt(id));
    done
}

/// A stream of events in the making.
struct Live {
    /// Absent after the end.
    running: Option<Running>,
    chunks: mpsc::Receiver<Chunk>,
    first: Option<Chunk>,
    pieces: Pieces,
    end: Option<Result<ExecResult, Error>>,
}

impl Live {
    /// Waits a moment for the first output or the end.
    async fn start(
        mut running: Running,
        mut chunks: mpsc::Receiver<Chunk>,
    ) -> Result<Self, Problem> {
        let (mut first, mut end) = (None, None);
        if let Ok(heard) = tokio::time::timeout(REFUSED_WITHIN, chunks.recv()).await {
            first = heard;
            if first.is_none() {
                end = Some(Ok(running.done().await?));
            }
        }
        Ok(Self {
            running: Some(running),
            chunks,
            first,
            pieces: Pieces::default(),
            end,
        })
    }

    /// The next event; none after the end.
    async fn next(&mut self) -> Option<Event> {
        self.running.as_ref()?;
        loop {
            let chunk = match self.first.take() {
                Some(first) => Some(first),
                None => self.chunks.recv().await,
            };
            let Some(chunk) = chunk else { break };
            if let Some(piece) = self.pieces.take(&chunk) {
                return Some(event("output", &piece));
            }
        }
        if let Some(rest) = self.pieces.rest() {
            return Some(event("output", &rest));
        }
        let mut running = self.running.take()?;
        let ended = match self.end.take() {
            Some(ended) => ended,
            None => running.done().await,
        };
        Some(match ended {
            Ok(done) => event("done", &Document::new(SCHEMA, done)),
            Err(error) => event("problem", &Problem::from(error)),
        })
    }
}

fn events(live: Live) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(live, |mut live| async {
        let event = live.next().await?;
        Some((Ok(event), live))
    })
}

fn event(name: &str, value: &impl Serialize) -> Event {
    // Text and numbers always can be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    Event::default().event(name).data(text)
}
