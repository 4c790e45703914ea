//! What every server does with its connections: accepts them until it is closed, and drives each of
//! them within its time limits.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::guard::Door;
use crate::held_body::until_sent;
use crate::listen::{ClientLink, ListeningSocket};
use crate::pace::{Late, Pace, PaceLimits, PacedStream};
use crate::places::ConnectionPlace;

/// Pause after a failed accept: the table is full, and an immediate retry would not help.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a connection that are kept in memory.
const BUFFER: usize = 64 << 10;

/// How a server treats a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionRules<'a> {
    /// The largest head of a request.
    pub head: usize,
    /// How long each part may take.
    pub limits: PaceLimits,
    /// Cancelled when the server closes: the connection ends after the current request.
    pub closing: &'a CancellationToken,
}

/// How a connection ended.
#[derive(Debug)]
pub enum ConnectionEnd<S> {
    /// By itself, or because the server closed.
    Over,
    /// Its place was given to another.
    Evicted,
    /// It took too long; the stream is still open.
    Late(Late, S),
}

/// Accepts connections until the server closes.
pub async fn accept_links(
    listening: &ListeningSocket,
    closing: &CancellationToken,
    mut accept: impl FnMut(ClientLink, Door),
) {
    loop {
        let accepted = tokio::select! {
            accepted = listening.accept() => accepted,
            () = closing.cancelled() => return,
        };
        match accepted {
            Ok((link, door)) => accept(link, door),
            // The client disconnected while it waited.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Serves one connection to its end. A client that `is_known` is not evicted for a stranger.
/// What is left to do with a stream that was late belongs to its place, too: the caller keeps it.
pub async fn serve_connection<S, F>(
    stream: S,
    place: Arc<ConnectionPlace>,
    rules: ConnectionRules<'_>,
    is_known: impl Fn(&HeaderMap) -> bool,
    answer: impl Fn(Request<Incoming>) -> F,
) -> ConnectionEnd<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = Response>,
{
    let pace = Pace::new();
    let own = pace.clone();
    let known = Arc::clone(&place);
    let service = service_fn(move |request: Request<Incoming>| {
        let answering = own.busy();
        if is_known(request.headers()) {
            known.know();
        }
        let response = answer(request);
        async move { Ok::<_, Infallible>(until_sent(response.await, answering)) }
    });
    let stream = PacedStream {
        stream,
        pace: pace.clone(),
    };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_header_size(rules.head)
        .max_buf_size(BUFFER.max(rules.head))
        .serve_connection(TokioIo::new(stream), service);
    let late = tokio::select! {
        late = in_time(&mut connection, &pace, rules) => late,
        () = place.evicted() => return ConnectionEnd::Evicted,
    };
    match late {
        Some(late) => ConnectionEnd::Late(late, connection.into_parts().io.into_inner().stream),
        None => ConnectionEnd::Over,
    }
}

/// Drives a connection to its end or to a timeout, and returns which timeout. When the server
/// closes, it ends after the current request.
async fn in_time<S, H>(
    connection: &mut http1::Connection<TokioIo<PacedStream<S>>, H>,
    pace: &Pace,
    rules: ConnectionRules<'_>,
) -> Option<Late>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: HttpService<Incoming, ResBody = Body>,
    H::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut sleep = std::pin::pin!(sleep_until(Instant::now()));
    let mut closing = std::pin::pin!(rules.closing.cancelled());
    let mut is_told = false;
    std::future::poll_fn(move |context| {
        if !is_told && closing.as_mut().poll(context).is_ready() {
            is_told = true;
            Pin::new(&mut *connection).graceful_shutdown();
        }
        // How a connection failed is its caller's knowledge.
        if Pin::new(&mut *connection).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        let Some((due, late)) = pace.deadline(&rules.limits) else {
            return Poll::Pending;
        };
        if sleep.deadline() != due {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().poll(context).map(|()| Some(late))
    })
    .await
}

/// Every answer is for its reader at this moment: nobody may keep it, unless it allows that, or
/// guess what it is.
pub fn forbid_keeping(response: &mut Response) {
    let headers = response.headers_mut();
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
}
