//! MCP at a path of the HTTP server: the SDK manages the MCP sessions; the host ends idle ones and
//! everything they opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures_util::future::join_all;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, header};
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::client::Client;
use super::handler::Handler;
use super::intake::{self, Intake, Refusal};
use crate::host::Host;
use crate::http::{Problem, read_body};

/// The header that names an MCP session.
const SESSION: &str = "mcp-session-id";
/// The header that names the version of the protocol, from 2025-06-18 on.
const VERSION: &str = "mcp-protocol-version";
/// Maximum time between two scans for idle sessions.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// MCP sessions at a time; each costs memory alone until it uses a tool.
const MOST: usize = 1024;

type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// The MCP side of the HTTP server.
pub(crate) struct Web {
    service: Service,
    sessions: Arc<LocalSessionManager>,
    known: Arc<KnownClients>,
    idle: Duration,
    /// Bytes of a request's body.
    max_body: usize,
}

impl Web {
    /// Access was checked before a request arrives here: Host, Origin and token are the HTTP
    /// server's job.
    pub(crate) fn new(
        host: Host,
        options: Options,
        max_body: usize,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let mut manager = LocalSessionManager::default();
        // The SDK's timer runs during a command, which may take a day; the host's own does not.
        manager.session_config.keep_alive = None;
        let sessions = Arc::new(manager);
        let known = Arc::new(KnownClients::default());
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .with_max_request_body_bytes(max_body)
            .with_cancellation_token(closing);
        let (idle, output_cap) = (options.idle, options.output_cap);
        let options = Arc::new(options);
        let theirs = Arc::clone(&known);
        let make = move || {
            let client = Arc::new(Client::new(host.clone(), output_cap));
            let handler = Handler::new(client, Arc::clone(&options));
            Ok(handler.known_by(Arc::clone(&theirs)))
        };
        Arc::new(Self {
            service: Service::new(make, Arc::clone(&sessions), config),
            sessions,
            known,
            idle,
            max_body,
        })
    }

    /// Whether this request would exceed the limit of MCP sessions.
    pub(crate) async fn is_full_for(&self, method: &Method, headers: &HeaderMap) -> bool {
        let is_new = method == Method::POST && session_of(headers).is_none();
        is_new && self.sessions.sessions.read().await.len() >= MOST
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        match *request.method() {
            Method::POST => self.answer_post(request).await,
            Method::DELETE => self.answer_delete(request).await,
            _ => self.ask_library(request).await,
        }
    }

    async fn ask_library(&self, request: Request) -> Response {
        self.service.handle(request).await.map(Body::new)
    }

    /// Ends an MCP session: 204, or 404 if there is none of this name.
    async fn answer_delete(&self, request: Request) -> Response {
        if let Some(id) = session_of(request.headers()) {
            if !self.sessions.sessions.read().await.contains_key(id) {
                let detail = "no such MCP session";
                return Problem::new(StatusCode::NOT_FOUND, "unknown", detail).into_response();
            }
            // Interrupt what runs for it now; the SDK would wait for it.
            self.known.end(id);
        }
        let mut response = self.ask_library(request).await;
        if response.status() == StatusCode::ACCEPTED {
            // It is done, not pending: clients treat "accepted" as a failure.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response
    }

    /// Handles a message, or several. Invalid input is answered here with an error message: the
    /// library would not do so.
    async fn answer_post(&self, request: Request) -> Response {
        if !is_json(request.headers()) {
            return self.ask_library(request).await;
        }
        let (head, body) = request.into_parts();
        let body = match read_body(&head.headers, body, self.max_body).await {
            Ok(body) => body,
            Err(problem) => return problem.into_response(),
        };
        match intake::read(&body) {
            Err(refusal) => refused(&refusal),
            Ok(Intake::One(message)) => match intake::check(&message) {
                Err(refusal) => refused(&refusal),
                Ok(()) => {
                    let request = Request::from_parts(head, Body::from(body));
                    self.ask_library(request).await
                }
            },
            Ok(Intake::Batch(messages)) => self.answer_batch(&head, messages).await,
        }
    }

    /// Handles several messages at once, as version 2025-03-26 allows. The version header came
    /// later.
    async fn answer_batch(&self, head: &Parts, messages: Vec<Value>) -> Response {
        let version = head.headers.get(VERSION);
        let version = version.map(|version| version.to_str().unwrap_or_default());
        if version.is_some_and(|version| !intake::has_batches(version)) {
            let why = "batches are supported only in protocol version 2025-03-26";
            return refused(&Refusal::invalid(Value::Null, why));
        }
        let answers = messages
            .into_iter()
            .map(|one| self.answer_member(head, one));
        let mut list = Vec::new();
        for answer in join_all(answers).await {
            match answer {
                Ok(answer) => list.extend(answer),
                // For example an unknown MCP session: the answer is the same for all members.
                Err(response) => return *response,
            }
        }
        match list.is_empty() {
            true => StatusCode::ACCEPTED.into_response(),
            false => Json(list).into_response(),
        }
    }

    /// The answer to one message of a batch; `None` for a notification.
    async fn answer_member(
        &self,
        head: &Parts,
        message: Value,
    ) -> Result<Option<Value>, Box<Response>> {
        if let Err(refusal) = intake::check_member(&message) {
            return Ok(Some(refusal.to_json()));
        }
        let body = Body::from(message.to_string());
        let mut head = head.clone();
        head.headers.remove(header::CONTENT_LENGTH);
        let response = self.ask_library(Request::from_parts(head, body)).await;
        if !response.status().is_success() {
            return Err(Box::new(response));
        }
        if !intake::is_request(&message) {
            return Ok(None);
        }
        // Output is bounded, so the response is, too; a disconnect drops this.
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await;
        Ok(answer_in(&body.unwrap_or_default(), &message["id"]))
    }

    /// Ends idle MCP sessions until the server closes; then all of them.
    pub(crate) async fn reap(self: Arc<Self>, closing: CancellationToken) {
        let every = (self.idle / 4).clamp(Duration::from_millis(10), LOOK_EVERY);
        let mut strangers = HashMap::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = closing.cancelled() => break,
            }
            let mut unused = self.known.unused(self.idle);
            unused.extend(self.strange(&mut strangers).await);
            for id in unused {
                self.close(&id).await;
            }
        }
        for id in self.known.all() {
            self.close(&id).await;
        }
    }

    /// Sessions that sent nothing after the handshake for too long.
    async fn strange(&self, strangers: &mut HashMap<String, Instant>) -> Vec<String> {
        let all = self.sessions.sessions.read().await;
        let all: Vec<String> = all.keys().map(ToString::to_string).collect();
        let known = self.known.all();
        let now = Instant::now();
        let nameless = all.into_iter().filter(|id| !known.contains(id));
        let nameless = nameless.map(|id| {
            let since = strangers.get(&id).copied().unwrap_or(now);
            (id, since)
        });
        *strangers = nameless.collect();
        let late = strangers.iter();
        let late = late.filter(|(_, since)| now.duration_since(**since) >= self.idle);
        late.map(|(id, _)| id.clone()).collect()
    }

    async fn close(&self, id: &str) {
        self.known.end(id);
        // It may be gone already.
        drop(self.sessions.close_session(&id.into()).await);
    }
}

impl std::fmt::Debug for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Web").field("known", &self.known).finish()
    }
}

/// Known MCP sessions and their clients.
#[derive(Debug, Default)]
pub(super) struct KnownClients(Mutex<HashMap<String, Weak<Client>>>);

impl KnownClients {
    /// Learns the client of an MCP session from the head of a request.
    pub(super) fn learn(&self, extensions: &Extensions, client: &Arc<Client>) {
        let parts = extensions.get::<Parts>();
        let id = parts.and_then(|parts| session_of(&parts.headers));
        if let Some(id) = id {
            let mut all = self.map();
            all.retain(|_, client| client.strong_count() > 0);
            all.insert(id.to_owned(), Arc::downgrade(client));
        }
    }

    /// Ends an MCP session: its answers are no longer needed.
    fn end(&self, id: &str) {
        let client = self.map().remove(id);
        if let Some(client) = client.and_then(|client| client.upgrade()) {
            client.gone.cancel();
        }
    }

    fn unused(&self, idle: Duration) -> Vec<String> {
        let is_unused = |client: &Weak<Client>| {
            let client = client.upgrade();
            client.is_some_and(|client| client.idle_for().is_some_and(|time| time >= idle))
        };
        let all = self.map();
        let unused = all.iter().filter(|(_, client)| is_unused(client));
        unused.map(|(id, _)| id.clone()).collect()
    }

    fn all(&self) -> Vec<String> {
        self.map().keys().cloned().collect()
    }

    fn map(&self) -> MutexGuard<'_, HashMap<String, Weak<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Extracts the answer to a request from the library's output: a document, or a stream of events.
fn answer_in(body: &[u8], id: &Value) -> Option<Value> {
    let text = String::from_utf8_lossy(body);
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let messages = events.chain(std::iter::once(text.as_ref()));
    let mut messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    messages.find(|message| message.get("method").is_none() && message.get("id") == Some(id))
}

fn refused(refusal: &Refusal) -> Response {
    (StatusCode::BAD_REQUEST, Json(refusal.to_json())).into_response()
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|value| value.to_str().ok());
    media_type.is_some_and(|it| it.trim_start().starts_with("application/json"))
}

fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}
