//! Sessions: open, list, interrupt, reset and close.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::oneshot;

use crate::Error;
use crate::environment::is_fit;
use crate::host::{Host, SessionInfo};
use crate::http::route::{ApiRequest, Reply, Route};
use crate::receipt::{Receipt, SessionEndReason};
use crate::session::{Channel, SessionLimits, SessionProgram, SessionSpec};
use fdguard_http::Problem;

/// More output than this is streamed, not kept.
const LARGEST_OUTPUT: usize = 64 << 20;
/// An interpreter that needs longer will never be ready.
const LONGEST_START: u64 = 600_000;

/// A session to open.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSession {
    /// The interpreter: `bash`, `python`, or any other with `{"repl": …}`.
    program: SessionProgram,
    /// Id of the client that owns it. The session ends with the client; without one it ends when
    /// idle for too long.
    client: Option<String>,
    /// Working directory; default: the host's.
    #[serde(rename = "folder")]
    dir: Option<PathBuf>,
    /// Environment variables to add to the host's environment.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// Streams: `{"pty": {"columns": 80, "rows": 24}}` (default) or `pipes`.
    channel: Option<Channel>,
    /// Resource limits.
    limits: Option<SessionLimits>,
    /// Bytes of output kept per command and stream; default 1 MiB.
    #[schemars(range(max = 67_108_864))]
    output_cap: Option<usize>,
    /// Milliseconds the interpreter may take to become ready; default 10000.
    #[schemars(range(min = 1, max = 600_000))]
    ready_within_ms: Option<u64>,
}

impl NewSession {
    fn spec(self) -> Result<SessionSpec, Problem> {
        let mut spec = SessionSpec::new(self.program);
        let mut variables = self.environment.iter();
        if let Some((name, _)) = variables.find(|(name, value)| !is_fit(name, value)) {
            let problem = Problem::senseless(format!("invalid environment variable {name:?}"));
            return Err(problem.at("environment".to_owned()));
        }
        spec.environment = self.environment.into_iter().collect();
        spec.dir = self.dir;
        spec.limits = self.limits.unwrap_or_default();
        spec.channel = self.channel.unwrap_or(spec.channel);
        if let Some(cap) = self.output_cap {
            spec.output_cap = within(cap, 0, LARGEST_OUTPUT, "output_cap")?;
        }
        if let Some(ms) = self.ready_within_ms {
            let ms = within(ms, 1, LONGEST_START, "ready_within_ms")?;
            spec.ready_within = Duration::from_millis(ms);
        }
        Ok(spec)
    }
}

/// The number, if it is within its bounds.
pub(super) fn within<T: PartialOrd + std::fmt::Display>(
    number: T,
    least: T,
    most: T,
    path: &str,
) -> Result<T, Problem> {
    if number >= least && number <= most {
        return Ok(number);
    }
    let detail = format!("{path} must be from {least} to {most}, not {number}");
    Err(Problem::senseless(detail).at(path.to_owned()))
}

/// Open sessions.
#[derive(Debug, Serialize, JsonSchema)]
struct Sessions {
    /// Open sessions.
    sessions: Vec<SessionInfo>,
}

/// Result of an interrupt.
#[derive(Debug, Serialize, JsonSchema)]
struct InterruptAnswer {
    /// Session id.
    id: String,
    /// False if no command was running.
    was_running: bool,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let found = |schema| (StatusCode::OK, schema);
    let made = (StatusCode::CREATED, "fdguard.session/1");
    let one = "/v1/sessions/{id}";
    vec![
        Route::tell((Method::POST, "/v1/sessions"), "open_session", made, open)
            .summary("Start an interpreter. 201 means that it is ready for commands.")
            .example(json!({"program": "bash", "folder": "/tmp", "channel": "pipes"}))
            // An interpreter whose limits are too small ends before it is ready.
            .refuses(&[404, 410]),
        Route::ask(
            (Method::GET, "/v1/sessions"),
            "list_sessions",
            found("fdguard.sessions/1"),
            list,
        )
        .summary("List open sessions"),
        Route::ask(
            (Method::GET, one),
            "get_session",
            found("fdguard.session/1"),
            get,
        )
        .summary("Get a session")
        .refuses(&[404, 410]),
        Route::ask(
            (Method::DELETE, one),
            "close_session",
            found("fdguard.receipt/1"),
            close,
        )
        .summary("Close a session and everything it started. The receipt counts what is left.")
        .refuses(&[404, 410]),
        Route::ask(
            (Method::POST, "/v1/sessions/{id}/interrupt"),
            "interrupt_session",
            found("fdguard.interrupted/1"),
            interrupt,
        )
        .summary("Interrupt the running command. Its output so far is kept.")
        .refuses(&[404, 410]),
        Route::ask(
            (Method::POST, "/v1/sessions/{id}/reset"),
            "reset_session",
            found("fdguard.receipt/1"),
            reset,
        )
        .summary("Replace the session's interpreter with a new one in the same directory")
        .refuses(&[404, 409, 410, 422]),
    ]
}

async fn open(asked: ApiRequest, mut body: NewSession) -> Result<Reply<SessionInfo>, Problem> {
    let client = body.client.take();
    let host = asked.api.host.clone();
    let id = open_for(host.clone(), client, body.spec()?).await?;
    let info = host.session(&id)?;
    Ok(Reply::new(info).at(&format!("/v1/sessions/{id}")))
}

/// Opens it in its own task: if the caller disconnects meanwhile, the id is lost, and the session
/// is closed.
async fn open_for(host: Host, client: Option<String>, spec: SessionSpec) -> Result<String, Error> {
    let (sender, opened) = oneshot::channel();
    // Its result arrives through the channel.
    drop(tokio::spawn(async move {
        let outcome = host.open(client.as_deref(), spec).await;
        if let Err(Ok(id)) = sender.send(outcome) {
            // It may have been closed already.
            let _closed = host.close(&id, SessionEndReason::ClientGone).await;
        }
    }));
    // The task ends without a result only when the runtime does.
    opened.await.unwrap_or(Err(Error::Closing))
}

/// Runs what must not stop half way when its caller goes away.
pub(super) async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    tokio::spawn(work).await.unwrap_or(Err(Error::Closing))
}

async fn list(asked: ApiRequest) -> Result<Reply<Sessions>, Problem> {
    let sessions = asked.api.host.sessions();
    Ok(Reply::new(Sessions { sessions }))
}

async fn get(asked: ApiRequest) -> Result<Reply<SessionInfo>, Problem> {
    Ok(Reply::new(asked.api.host.session(asked.id())?))
}

async fn close(asked: ApiRequest) -> Result<Reply<Receipt>, Problem> {
    let receipt = whole(async move {
        asked
            .api
            .host
            .close(asked.id(), SessionEndReason::Asked)
            .await
    });
    Ok(Reply::new(receipt.await?))
}

async fn interrupt(asked: ApiRequest) -> Result<Reply<InterruptAnswer>, Problem> {
    let id = asked.id().to_owned();
    let was_running = whole(async move { asked.api.host.interrupt(asked.id()).await });
    let was_running = was_running.await?;
    Ok(Reply::new(InterruptAnswer { id, was_running }))
}

async fn reset(asked: ApiRequest) -> Result<Reply<Receipt>, Problem> {
    let receipt = whole(async move { asked.api.host.reset(asked.id()).await });
    Ok(Reply::new(receipt.await?))
}
