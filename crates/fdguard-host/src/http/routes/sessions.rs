//! Sessions: opened, listed, interrupted, reset and closed.

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
use crate::http::problem::Problem;
use crate::http::route::{ApiRequest, Reply, Route};
use crate::receipt::{Receipt, SessionEndReason};
use crate::session::{Channel, SessionLimits, SessionProgram, SessionSpec};

/// More output than this is streamed, not kept.
const LARGEST_OUTPUT: usize = 64 << 20;
/// Who needs longer to get ready never will.
const LONGEST_START: u64 = 600_000;

/// A session that is to be opened.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSession {
    /// The interpreter: `bash`, `python`, or any other with `{"repl": …}`.
    program: SessionProgram,
    /// Whose it is: it ends when the client does. Without one it ends when nobody used it for long.
    client: Option<String>,
    /// Where it starts; the host's folder when absent.
    folder: Option<PathBuf>,
    /// Variables besides the host's own environment.
    #[serde(default)]
    environment: BTreeMap<String, String>,
    /// How it is spoken to: `{"pty": {"columns": 80, "rows": 24}}`, which is the default, or `pipes`.
    channel: Option<Channel>,
    /// What it may use.
    limits: Option<SessionLimits>,
    /// Bytes of output that a command's result keeps of each stream; 1 MiB when absent.
    #[schemars(range(max = 67_108_864))]
    output_cap: Option<usize>,
    /// Milliseconds from its start to the first command that it can take; 10 s when absent.
    #[schemars(range(min = 1, max = 600_000))]
    ready_within_ms: Option<u64>,
}

impl NewSession {
    fn spec(self) -> Result<SessionSpec, Problem> {
        let mut spec = SessionSpec::new(self.program);
        let mut variables = self.environment.iter();
        if let Some((name, _)) = variables.find(|(name, value)| !is_fit(name, value)) {
            let problem = Problem::senseless(format!("{name:?} is no variable"));
            return Err(problem.at("environment".to_owned()));
        }
        spec.environment = self.environment.into_iter().collect();
        spec.folder = self.folder;
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
    let detail = format!("{path} is {least} to {most}, and not {number}");
    Err(Problem::senseless(detail).at(path.to_owned()))
}

/// All sessions.
#[derive(Debug, Serialize, JsonSchema)]
struct Sessions {
    /// Those that are open.
    sessions: Vec<SessionInfo>,
}

/// Whether something was interrupted.
#[derive(Debug, Serialize, JsonSchema)]
struct InterruptAnswer {
    /// Which session.
    id: String,
    /// False: nothing ran.
    was_running: bool,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let found = |schema| (StatusCode::OK, schema);
    let made = (StatusCode::CREATED, "fdguard.session/1");
    let one = "/v1/sessions/{id}";
    vec![
        Route::tell((Method::POST, "/v1/sessions"), "open_session", made, open)
            .summary("Start an interpreter; 201 means that it can take a command")
            .example(json!({"program": "bash", "folder": "/tmp", "channel": "pipes"}))
            // One whose limits are too small for its program ends before it is ready.
            .refuses(&[404, 410]),
        Route::ask(
            (Method::GET, "/v1/sessions"),
            "list_sessions",
            found("fdguard.sessions/1"),
            list,
        )
        .summary("All sessions that are open"),
        Route::ask(
            (Method::GET, one),
            "get_session",
            found("fdguard.session/1"),
            get,
        )
        .summary("One session")
        .refuses(&[404, 410]),
        Route::ask(
            (Method::DELETE, one),
            "close_session",
            found("fdguard.receipt/1"),
            close,
        )
        .summary("End a session: everything that it started is gone, and the receipt says so")
        .refuses(&[404, 410]),
        Route::ask(
            (Method::POST, "/v1/sessions/{id}/interrupt"),
            "interrupt_session",
            found("fdguard.interrupted/1"),
            interrupt,
        )
        .summary("Interrupt the command that runs; what it said so far is kept")
        .refuses(&[404, 410]),
        Route::ask(
            (Method::POST, "/v1/sessions/{id}/reset"),
            "reset_session",
            found("fdguard.receipt/1"),
            reset,
        )
        .summary("A new program in the same session and folder")
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

/// Opens it in a task of its own: when its caller goes away meanwhile, nobody knows its id, and it is closed.
async fn open_for(host: Host, client: Option<String>, spec: SessionSpec) -> Result<String, Error> {
    let (sender, opened) = oneshot::channel();
    // Its end comes by the channel.
    drop(tokio::spawn(async move {
        let outcome = host.open(client.as_deref(), spec).await;
        if let Err(Ok(id)) = sender.send(outcome) {
            // It may have been closed already.
            let _closed = host.close(&id, SessionEndReason::ClientGone).await;
        }
    }));
    // The task ends without a word only when the runtime does.
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
