//! The server: accepts a bounded number of connections, each for a bounded time, and ends all of
//! them on shutdown.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use fdguard_http::{
    Answering, ClientLink, ConnectionPlace, Door, Late, ListeningSocket, Pace, PacedStream, Places,
    Problem, guard, refuse, until_sent,
};
use http::{HeaderValue, Request, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api::{Api, ApiSettings};
use super::table;
use crate::host::Host;
use crate::scope::{Scope, Scopes};

/// The largest head of a request.
const HEAD: usize = 32 << 10;
/// Pause after a failed accept: the table is full, and an immediate retry would not help.
const PAUSE: Duration = Duration::from_millis(100);
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
        let closing = self.api.closing.clone();
        loop {
            let taken = tokio::select! {
                taken = listening.accept() => taken,
                () = closing.cancelled() => return,
            };
            match taken {
                Ok((link, door)) => self.accept_link(link, door),
                // The client disconnected while it waited.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
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
        let pace = Pace::new();
        let keeper = Arc::clone(&self);
        let own = pace.clone();
        let place = Arc::new(place);
        let known = Arc::clone(&place);
        let service = service_fn(move |request: Request<Incoming>| {
            let keeper = Arc::clone(&keeper);
            let answering = own.busy();
            if guard::has_token(&keeper.api.settings.access(), request.headers()) {
                known.know();
            }
            async move { Ok::<_, Infallible>(keeper.answer(request, door, answering).await) }
        });
        let io = TokioIo::new(PacedStream {
            stream,
            pace: pace.clone(),
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_header_size(HEAD)
            .max_buf_size(HEAD.max(64 << 10))
            .serve_connection(io, service);
        let late = tokio::select! {
            late = in_time(&mut connection, &pace, &self.api) => late,
            () = place.evicted() => {
                self.api.counts.evicted.add();
                return;
            }
        };
        if late == Some(Late::Answer) {
            self.api.counts.unread.add();
        }
        if late == Some(Late::Head) {
            self.api.counts.too_slow.add();
            let mut stream = connection.into_parts().io.into_inner().stream;
            let within = self.api.settings.head_within.as_secs_f64();
            let detail = format!("request headers not received within {within} s");
            let problem = Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", detail);
            let text = refuse::text(&problem);
            // A client that sends slowly may not read either: it is not waited for.
            drop(timeout(PAUSE, stream.write_all(&text)).await);
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        door: Door,
        answering: Answering,
    ) -> Response {
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
        let headers = response.headers_mut();
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(header::CACHE_CONTROL).or_insert(no_store);
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        until_sent(response, answering)
    }
}

/// Drives a connection to its end or to a timeout, and returns which timeout. When the server
/// closes, it ends after the current request.
async fn in_time<S, B>(
    connection: &mut http1::Connection<TokioIo<PacedStream<S>>, B>,
    pace: &Pace,
    api: &Api,
) -> Option<Late>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: hyper::service::HttpService<Incoming, ResBody = Body>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut sleep = std::pin::pin!(sleep_until(Instant::now()));
    let mut closing = std::pin::pin!(api.closing.cancelled());
    let mut is_told = false;
    std::future::poll_fn(move |context| {
        if !is_told && closing.as_mut().poll(context).is_ready() {
            is_told = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        // How a connection failed is its caller's knowledge.
        if Pin::new(&mut *connection).poll(context).is_ready() {
            return std::task::Poll::Ready(None);
        }
        let Some((due, late)) = pace.deadline(&api.settings.pace()) else {
            return std::task::Poll::Pending;
        };
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(context).map(|()| Some(late))
    })
    .await
}
