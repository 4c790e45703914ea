//! The server: accepts a bounded number of connections, each for a bounded time, and ends all of
//! them on shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use fdguard_core::units::exact_seconds;
use fdguard_http::{
    ClientLink, ConnectionEnd, ConnectionPlace, ConnectionRules, Door, Late, ListeningSocket,
    Places, Problem, accept_links, forbid_keeping, guard, refuse, serve_connection,
};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api::{Api, ApiSettings};
use super::table;
use crate::host::Host;
use crate::scope::{Scope, Scopes};

/// The largest head of a request.
const HEAD: usize = 32 << 10;
/// How long the sentence for a slow client may take.
const LAST_WORD: Duration = Duration::from_millis(100);
/// Connections accepted when the host's descriptor table is almost full: enough to query its
/// health.
const FEW: usize = 8;

type Router = TowerToHyperService<axum::Router>;

/// A server that accepts connections until it is closed.
#[derive(Debug)]
pub struct HttpServer {
    api: Arc<Api>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl HttpServer {
    /// Starts to accept connections, on the current runtime.
    #[must_use]
    pub fn start(host: Host, listening: Vec<ListeningSocket>, settings: ApiSettings) -> Self {
        let closing = CancellationToken::new();
        let tasks = TaskTracker::new();
        let places = Places::new(settings.max_connections);
        let api = Api::new(host, settings, closing.clone());
        let door = Arc::new(Doorkeeper {
            router: TowerToHyperService::new(table::router(&api)),
            api: Arc::clone(&api),
            places,
            tasks: tasks.clone(),
        });
        drop(tasks.spawn(Arc::clone(&api).follow_clients()));
        drop(tasks.spawn(Arc::clone(&api.mcp).reap(closing.clone())));
        for listening in listening {
            // The tracker waits for its end.
            drop(tasks.spawn(Arc::clone(&door).keep(listening)));
        }
        Self {
            api,
            closing,
            tasks,
        }
    }

    /// Accepts no new connections and requests; requests in progress continue.
    pub fn close(&self) {
        self.closing.cancel();
        self.tasks.close();
    }

    /// The scopes of the agents.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.api.scopes.clone()
    }

    /// Starts to clean up the scopes of a killed host, below the current roots.
    pub async fn inherit(&self) -> Vec<Arc<Scope>> {
        let roots = &self.api.settings.roots;
        let scopes = &self.api.scopes;
        scopes.inherit(|root| roots.find(root).is_ok()).await
    }

    /// Ends calls and scopes.
    pub async fn release(&self) {
        self.api.release().await;
    }

    /// Waits until every connection has ended; false on timeout.
    pub async fn ended(&self, within: Duration) -> bool {
        timeout(within, self.tasks.wait()).await.is_ok()
    }
}

struct Doorkeeper {
    api: Arc<Api>,
    router: Router,
    places: Arc<Places>,
    tasks: TaskTracker,
}

impl Doorkeeper {
    async fn keep(self: Arc<Self>, listening: ListeningSocket) {
        let closing = &self.api.closing;
        accept_links(&listening, closing, |link, door| {
            self.accept_link(link, door)
        })
        .await;
    }

    fn accept_link(self: &Arc<Self>, link: ClientLink, door: Door) {
        self.api.counts.connections.add();
        let has_room = self.api.host.has_room();
        let place = self.places.acquire(if has_room { usize::MAX } else { FEW });
        let Ok(place) = place else {
            self.api.counts.refused.add();
            let most = self.api.settings.max_connections;
            let why = if has_room {
                format!("too many connections: {most} are open, which is the limit")
            } else {
                "the host is close to its descriptor limit".to_owned()
            };
            refuse::now(link, &why);
            return;
        };
        let keeper = Arc::clone(self);
        // The tracker waits for its end.
        drop(match link {
            ClientLink::Tcp(stream) => self.tasks.spawn(keeper.serve(stream, door, place)),
            ClientLink::Unix(stream) => self.tasks.spawn(keeper.serve(stream, door, place)),
        });
    }

    /// Serves one connection to its end.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        door: Door,
        place: ConnectionPlace,
    ) {
        // Kept until a client that was late has been told.
        let place = Arc::new(place);
        let api = Arc::clone(&self.api);
        let rules = ConnectionRules {
            head: HEAD,
            limits: api.settings.pace(),
            closing: &api.closing,
        };
        let is_known = |headers: &HeaderMap| guard::has_token(&api.settings.access(), headers);
        let answer = move |request| {
            let keeper = Arc::clone(&self);
            async move { keeper.answer(request, door).await }
        };
        match serve_connection(stream, Arc::clone(&place), rules, is_known, answer).await {
            ConnectionEnd::Over | ConnectionEnd::Late(Late::Request, _) => {}
            ConnectionEnd::Evicted => api.counts.evicted.add(),
            ConnectionEnd::Late(Late::Answer, _) => api.counts.unread.add(),
            ConnectionEnd::Late(Late::Head, stream) => {
                api.counts.too_slow.add();
                say_too_slow(stream, api.settings.head_within).await;
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>, door: Door) -> Response {
        let (mut parts, body) = request.into_parts();
        let _no_other = parts.extensions.insert(door);
        let mut response = match guard::check_names(&self.api.settings.access(), door, &parts) {
            Err(problem) => problem.into_response(),
            Ok(()) => {
                let request = Request::from_parts(parts, Body::new(body));
                match self.router.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        };
        self.api.counts.answered(response.status());
        forbid_keeping(&mut response);
        response
    }
}

/// A client that sends slowly may not read either: it is not waited for.
async fn say_too_slow(mut stream: impl AsyncWrite + Unpin, within: Duration) {
    let within = exact_seconds(within);
    let detail = format!("request headers not received within {within}");
    let problem = Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail);
    let text = refuse::text(&problem);
    drop(timeout(LAST_WORD, stream.write_all(&text)).await);
}
