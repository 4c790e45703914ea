//! Accepts a bounded number of connections, each for a bounded time, with or without TLS.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use fdguard_http::{
    ClientLink, ConnectionPlace, Door, ListeningSocket, Pace, PaceLimits, PacedStream, Places,
    guard, refuse, until_sent,
};
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::api::WebApi;

/// The largest head of a request.
const HEAD: usize = 16 << 10;
/// Pause after a failed accept: the table is full, and an immediate retry would not help.
const PAUSE: Duration = Duration::from_millis(100);
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
        let closing = self.api.closing.clone();
        loop {
            let taken = tokio::select! {
                taken = listening.accept() => taken,
                () = closing.cancelled() => return,
            };
            match taken {
                Ok((link, door)) => self.accept(link, door),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
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
        let pace = Pace::new();
        let (keeper, own) = (Arc::clone(&self), pace.clone());
        let place = Arc::new(place);
        let known = Arc::clone(&place);
        let service = service_fn(move |request: Request<Incoming>| {
            let keeper = Arc::clone(&keeper);
            let answering = own.busy();
            if keeper.api.settings.may_view(request.headers()).is_ok() {
                known.know();
            }
            async move {
                let response = keeper.answer(request, door).await;
                Ok::<_, Infallible>(until_sent(response, answering))
            }
        });
        let stream = PacedStream {
            stream,
            pace: pace.clone(),
        };
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_header_size(HEAD)
            .max_buf_size(64 << 10)
            .serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            () = in_time(&mut connection, &pace, &self.api.closing) => {}
            () = place.evicted() => {}
        }
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
        let headers = response.headers_mut();
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(header::CACHE_CONTROL).or_insert(no_store);
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        response
    }
}

/// Drives a connection to its end or to a timeout. When the server closes, it ends after the
/// current request.
async fn in_time<S, B>(
    connection: &mut http1::Connection<TokioIo<PacedStream<S>>, B>,
    pace: &Pace,
    closing: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: hyper::service::HttpService<Incoming, ResBody = Body>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut sleep = std::pin::pin!(sleep_until(Instant::now()));
    let mut closing = std::pin::pin!(closing.cancelled());
    let mut is_told = false;
    std::future::poll_fn(move |context| {
        if !is_told && closing.as_mut().poll(context).is_ready() {
            is_told = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        if Pin::new(&mut *connection).poll(context).is_ready() {
            return std::task::Poll::Ready(());
        }
        let Some((due, _)) = pace.deadline(&LIMITS) else {
            return std::task::Poll::Pending;
        };
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(context)
    })
    .await;
}
