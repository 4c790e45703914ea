//! The connection as hyper sees it: plain or TLS, with byte counters, and the request body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The size of the pieces in which a body is passed to the connection.
const PIECE: usize = 64 * 1024;

/// Byte counters of the request that the connection serves now. The owner writes them; others read
/// them.
#[derive(Debug)]
pub(super) struct Meter {
    epoch: Instant,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    /// Microseconds since the epoch, plus one; 0 is never.
    last: AtomicU64,
    /// hyper has the whole body.
    is_handed: AtomicBool,
    /// The kernel has the whole request.
    is_out: AtomicBool,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            last: AtomicU64::new(0),
            is_handed: AtomicBool::new(false),
            is_out: AtomicBool::new(false),
        }
    }

    /// Another request starts on the same connection.
    pub(super) fn reset(&self) {
        self.bytes_in.store(0, Relaxed);
        self.bytes_out.store(0, Relaxed);
        self.last.store(0, Relaxed);
        self.is_handed.store(false, Relaxed);
        self.is_out.store(false, Relaxed);
    }

    /// In and out.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.bytes_in.load(Relaxed), self.bytes_out.load(Relaxed))
    }

    pub(super) fn request_is_out(&self) -> bool {
        self.is_out.load(Relaxed)
    }

    pub(super) fn last_byte(&self) -> Option<Instant> {
        let last = self.last.load(Relaxed).checked_sub(1)?;
        Some(self.epoch + Duration::from_micros(last))
    }

    fn count(&self, counter: &AtomicU64, bytes: usize) {
        if bytes > 0 {
            counter.fetch_add(bytes as u64, Relaxed);
            let since = u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX - 1);
            self.last.store(since + 1, Relaxed);
        }
    }

    fn flushed(&self) {
        if self.is_handed.load(Relaxed) && self.bytes_out.load(Relaxed) > 0 {
            self.is_out.store(true, Relaxed);
        }
    }
}

/// The owner's socket, with or without TLS.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream that counts.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    meter: Arc<Meter>,
}

impl Wire {
    pub(super) fn new(stream: Stream, meter: Arc<Meter>) -> Self {
        Self { stream, meter }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let result = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        this.meter
            .count(&this.meter.bytes_in, buffer.filled().len() - before);
        result
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        })?;
        this.meter.count(&this.meter.bytes_out, written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        })?;
        this.meter.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A request's body, passed in pieces, so that it is known when hyper has all of it.
#[derive(Debug)]
pub(super) struct Outgoing {
    rest: Bytes,
    meter: Arc<Meter>,
}

impl Outgoing {
    pub(super) fn new(body: Bytes, meter: Arc<Meter>) -> Self {
        meter.is_handed.store(body.is_empty(), Relaxed);
        Self { rest: body, meter }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        if self.rest.is_empty() {
            self.meter.is_handed.store(true, Relaxed);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
