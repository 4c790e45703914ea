//! Time limits of a connection: for request headers, while idle, and while the client does not
//! read.
//!
//! A client that sends headers byte by byte could hold a connection forever. hyper has one timer
//! for headers and idle time, but an idle connection deserves more time than a request that has
//! started. A client that stops reading would hold its response and its request slot forever.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// How long each part of a connection may take.
#[derive(Clone, Copy, Debug)]
pub struct PaceLimits {
    /// From the first byte of a request to the end of its headers.
    pub head_within: Duration,
    /// How long a connection without a request may stay open.
    pub idle_within: Duration,
    /// A client that reads no byte of its answer for this long counts as gone.
    pub read_within: Duration,
}

/// State of a connection, shared by its reader and its responder.
#[derive(Clone, Debug)]
pub(crate) struct Pace(Arc<Mutex<Course>>);

#[derive(Clone, Copy, Debug)]
struct Course {
    state: State,
    /// Its client has read nothing since then.
    stalled: Option<Instant>,
}

/// What took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The head of a request.
    Head,
    /// The next request.
    Request,
    /// The caller does not read its answer.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No byte of a request has arrived since then.
    Idle(Instant),
    /// Headers started to arrive at this time.
    Head(Instant),
    /// A request is being answered.
    Busy,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}

impl Pace {
    /// A new connection: the first head is awaited.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Course {
            state: State::Head(Instant::now()),
            stalled: None,
        })))
    }

    fn set(&self, next: impl FnOnce(State) -> State) {
        let mut course = self.lock();
        course.state = next(course.state);
    }

    fn lock(&self) -> MutexGuard<'_, Course> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The headers are complete; dropping the returned value ends the response.
    #[must_use]
    pub(crate) fn busy(&self) -> Answering {
        self.set(|_| State::Busy);
        Answering(self.clone())
    }

    /// When the connection times out, and why.
    #[must_use]
    pub(crate) fn deadline(&self, limits: &PaceLimits) -> Option<(Instant, Late)> {
        let course = *self.lock();
        if let Some(since) = course.stalled {
            return Some((since + limits.read_within, Late::Answer));
        }
        match course.state {
            State::Idle(since) => Some((since + limits.idle_within, Late::Request)),
            State::Head(since) => Some((since + limits.head_within, Late::Head)),
            State::Busy => None,
        }
    }

    /// Bytes were offered to the caller; whether it took any.
    fn offered(&self, has_taken: bool) {
        let mut course = self.lock();
        course.stalled = match (has_taken, course.stalled) {
            (true, _) => None,
            (false, since) => since.or_else(|| Some(Instant::now())),
        };
    }

    fn heard(&self) {
        self.set(|state| match state {
            State::Idle(_) => State::Head(Instant::now()),
            state => state,
        });
    }
}

/// A request is being answered while this exists.
#[derive(Debug)]
pub(crate) struct Answering(Pace);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.set(|_| State::Idle(Instant::now()));
    }
}

/// A connection that reports its reads and writes to its pace.
#[derive(Debug)]
pub(crate) struct PacedStream<S> {
    /// The connection.
    pub(crate) stream: S,
    /// Its pace.
    pub(crate) pace: Pace,
}

impl<S: AsyncRead + Unpin> AsyncRead for PacedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pace.heard();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PacedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.pace.offered(written.is_ready());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.pace.offered(written.is_ready());
        written
    }
}
