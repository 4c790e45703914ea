//! MCP at a path of the HTTP server: the SDK keeps the MCP sessions, we end those that nobody uses any more, and what they opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode};
use rmcp::model::Extensions;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::client::Client;
use super::handler::Handler;
use crate::host::Host;

/// The header that names an MCP session.
const SESSION: &str = "mcp-session-id";
/// Between two looks for those that nobody uses, at most.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// MCP sessions at a time; each costs memory alone until it uses a tool.
const MOST: usize = 1024;

type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// The MCP side of the HTTP server.
pub(crate) struct Web {
    service: Service,
    sessions: Arc<LocalSessionManager>,
    known: Arc<Known>,
    idle: Duration,
}

impl Web {
    /// Who may ask has been found out before a request comes here: the names in Host and Origin and the token are the HTTP server's business.
    pub(crate) fn new(
        host: Host,
        options: Options,
        max_body: usize,
        closing: CancellationToken,
    ) -> Arc<Self> {
        let mut manager = LocalSessionManager::default();
        // Its clock runs while a command does, which may take a day: ours does not.
        manager.session_config.keep_alive = None;
        let sessions = Arc::new(manager);
        let known = Arc::new(Known::default());
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
        })
    }

    /// Whether this would begin one MCP session too many.
    pub(crate) async fn is_full_for(&self, method: &Method, headers: &HeaderMap) -> bool {
        let is_new = method == Method::POST && session_of(headers).is_none();
        is_new && self.sessions.sessions.read().await.len() >= MOST
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, request: Request) -> Response {
        let is_end = request.method() == Method::DELETE;
        if let Some(id) = session_of(request.headers()).filter(|_| is_end) {
            // What runs for it is interrupted now; the SDK would wait for it.
            self.known.end(id);
        }
        let mut response = self.service.handle(request).await.map(Body::new);
        if is_end && response.status() == StatusCode::ACCEPTED {
            // It is done, not begun: clients take "accepted" for a failure.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response
    }

    /// Ends MCP sessions that nobody uses, until the server closes; then all of them.
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

    /// Those that never said more than hello, for too long.
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

/// The MCP sessions that were heard of, with their clients.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<String, Weak<Client>>>);

impl Known {
    /// Learns whose an MCP session is, from the head of a request.
    pub(super) fn learn(&self, extensions: &Extensions, client: &Arc<Client>) {
        let parts = extensions.get::<http::request::Parts>();
        let id = parts.and_then(|parts| session_of(&parts.headers));
        if let Some(id) = id {
            let mut all = self.map();
            all.retain(|_, client| client.strong_count() > 0);
            all.insert(id.to_owned(), Arc::downgrade(client));
        }
    }

    /// Nobody waits for answers in it any more.
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

fn session_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(SESSION)?.to_str().ok()
}
