//! Accepts a bounded number of connections, each for a bounded time, with or without TLS.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use fdguard_http::{
    ClientLink, ConnectionPlace, ConnectionRules, Door, ListeningSocket, PaceLimits, Places,
    accept_links, forbid_keeping, guard, refuse, serve_connection,
};
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api::WebApi;

/// The largest head of a request.
const HEAD: usize = 16 << 10;
/// A TLS handshake must be done within this time.
const HANDSHAKE: Duration = Duration::from_secs(10);

const LIMITS: PaceLimits = PaceLimits {
    head_within: Duration::from_secs(10),
    idle_within: Duration::from_secs(60),
    read_within: Duration::from_secs(30),
};

/// A server that accepts connections until it is closed.
#[derive(Debug)]
pub(crate) struct WebServer {
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl WebServer {
    /// Starts to accept connections, on the current runtime.
    pub(crate) fn start(api: &Arc<WebApi>, listening: Vec<ListeningSocket>) -> Self {
        let tasks = TaskTracker::new();
        let door = Arc::new(WebDoor {
            api: Arc::clone(api),
            router: TowerToHyperService::new(WebApi::router(api)),
            places: Places::new(api.settings.max_connections),
            tasks: tasks.clone(),
        });
        for listening in listening {
            drop(tasks.spawn(Arc::clone(&door).keep(listening)));
        }
        Self {
            closing: api.closing.clone(),
            tasks,
        }
    }

    /// Accepts nothing more, and waits a moment for requests in progress.
    pub(crate) async fn close(&self, within: Duration) {
        self.closing.cancel();
        self.tasks.close();
        drop(timeout(within, self.tasks.wait()).await);
    }
}

struct WebDoor {
    api: Arc<WebApi>,
    router: TowerToHyperService<axum::Router>,
    places: Arc<Places>,
    tasks: TaskTracker,
}

impl WebDoor {
    async fn keep(self: Arc<Self>, listening: ListeningSocket) {
        let closing = &self.api.closing;
        accept_links(&listening, closing, |link, door| self.accept(link, door)).await;
    }

    fn accept(self: &Arc<Self>, link: ClientLink, door: Door) {
        let Ok(place) = self.places.acquire(usize::MAX) else {
            let most = self.api.settings.max_connections;
            let why = format!("too many connections: {most} are open, which is the limit");
            refuse::now(link, &why);
            return;
        };
        let keeper = Arc::clone(self);
        drop(match (link, self.api.settings.tls.clone()) {
            (ClientLink::Tcp(stream), None) => self.tasks.spawn(keeper.serve(stream, door, place)),
            (ClientLink::Unix(stream), _) => self.tasks.spawn(keeper.serve(stream, door, place)),
            (ClientLink::Tcp(stream), Some(tls)) => self.tasks.spawn(async move {
                let greeted = timeout(HANDSHAKE, tls.0.accept(stream));
                let greeted = tokio::select! {
                    greeted = greeted => greeted,
                    () = place.evicted() => return,
                };
                if let Ok(Ok(stream)) = greeted {
                    keeper.serve(stream, door, place).await;
                }
            }),
        });
    }

    /// Serves one connection to its end.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        door: Door,
        place: ConnectionPlace,
    ) {
        let api = Arc::clone(&self.api);
        let rules = ConnectionRules {
            head: HEAD,
            limits: LIMITS,
            closing: &api.closing,
        };
        let is_known = |headers: &HeaderMap| api.settings.may_view(headers).is_ok();
        let answer = move |request| {
            let keeper = Arc::clone(&self);
            async move { keeper.answer(request, door).await }
        };
        let place = Arc::new(place);
        let _end = serve_connection(stream, place, rules, is_known, answer).await;
    }

    async fn answer(&self, request: Request<Incoming>, door: Door) -> Response {
        let (parts, body) = request.into_parts();
        let mut response = match guard::check_names(&self.api.settings.access(), door, &parts) {
            Err(problem) => problem.into_response(),
            Ok(()) => match self
                .router
                .call(Request::from_parts(parts, Body::new(body)))
                .await
            {
                Ok(response) => response,
                Err(never) => match never {},
            },
        };
        forbid_keeping(&mut response);
        response
    }
}
