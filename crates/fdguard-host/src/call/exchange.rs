//! A connection and its one request. The owner polls it: no background task can hold the socket
//! longer than the owner does.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::failure::CallFailure;
use super::request::{CallResponse, Ready};
use super::state::{CallPhase, Seat, State};
use super::wire::{Meter, Outgoing, Wire};

/// The largest head of an answer, and as much is read at once.
const LARGEST_HEAD: usize = 128 * 1024;
const MOST_HEADERS: usize = 256;

type Driver = http1::Connection<TokioIo<Wire>, Outgoing>;
type Answer = Pin<Box<dyn Future<Output = hyper::Result<http::Response<Incoming>>> + Send>>;

/// A connection that serves a call.
pub(super) struct Conn {
    /// First, so that the duplicate is closed before the socket.
    seat: Seat,
    sender: http1::SendRequest<Outgoing>,
    /// Owns the socket; `None` after the connection has ended.
    driver: Option<Driver>,
    meter: Arc<Meter>,
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("meter", &self.meter)
            .finish_non_exhaustive()
    }
}

impl Conn {
    pub(super) async fn new(
        wire: Wire,
        meter: Arc<Meter>,
        seat: Seat,
    ) -> Result<Self, CallFailure> {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(LARGEST_HEAD).max_headers(MOST_HEADERS);
        let made = builder.handshake(TokioIo::new(wire)).await;
        let (sender, driver) =
            made.map_err(|error| CallFailure::of_http(&error, CallPhase::Send))?;
        Ok(Self {
            seat,
            sender,
            driver: Some(driver),
            meter,
        })
    }

    pub(super) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Hands over the request. It is sent while the answer is awaited.
    pub(super) fn send(&mut self, request: &Ready) -> Answer {
        let body = Outgoing::new(request.body.clone(), Arc::clone(&self.meter));
        let mut message = http::Request::new(body);
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = request.path.clone();
        *message.headers_mut() = request.headers.clone();
        Box::pin(self.sender.send_request(message))
    }

    /// The answer's head and its body.
    pub(super) async fn head(
        &mut self,
        answer: &mut Answer,
    ) -> hyper::Result<(CallResponse, Incoming)> {
        // A new connection must be polled once before it accepts a request; the first poll does
        // that.
        let answered = poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => {
                self.drive(cx);
                answer.as_mut().poll(cx)
            }
        });
        let (head, body) = answered.await?.into_parts();
        Ok((CallResponse::from_parts(head.status, &head.headers), body))
    }

    /// The next piece of the body, `None` at its end. Trailers are skipped.
    pub(super) async fn piece(&mut self, body: &mut Incoming) -> hyper::Result<Option<Bytes>> {
        loop {
            let frame = poll_fn(|cx| match Pin::new(&mut body.frame()).poll(cx) {
                Poll::Ready(frame) => Poll::Ready(frame),
                Poll::Pending => {
                    self.drive(cx);
                    Pin::new(&mut body.frame()).poll(cx)
                }
            });
            match frame.await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        // Its error, if any, is also reported by the response or the body.
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(cx).is_ready()
        {
            self.driver = None;
        }
    }

    /// Whether the connection can serve another request after a complete response. It cannot if the
    /// peer sent `Connection: close`, has closed, or has not received the whole request.
    pub(super) fn is_reusable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    /// Without its claim on the call's slot.
    pub(super) fn park(self, spare: OwnedFd) -> Option<ParkedConnection> {
        drop(self.seat);
        Some(ParkedConnection {
            spare,
            sender: self.sender,
            driver: self.driver?,
            meter: self.meter,
        })
    }
}

/// A connection that waits for a request.
pub(super) struct ParkedConnection {
    spare: OwnedFd,
    sender: http1::SendRequest<Outgoing>,
    driver: Driver,
    meter: Arc<Meter>,
}

impl ParkedConnection {
    /// Whether the peer has neither closed it nor sent anything unexpected.
    pub(super) fn is_alive(&mut self) -> bool {
        // The kernel knows of a close earlier than the runtime, which learns of it on its next
        // poll.
        let mut byte = [0_u8];
        let peeked = recv(
            &self.spare,
            &mut byte[..],
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        let is_open = match peeked {
            Err(errno) => errno == Errno::AGAIN || errno == Errno::INTR,
            Ok((count, _)) => count > 0,
        };
        let mut cx = Context::from_waker(Waker::noop());
        // Received bytes may belong to TLS itself (tickets). Unsolicited HTTP ends the driver.
        is_open && Pin::new(&mut self.driver).poll(&mut cx).is_pending() && self.sender.is_ready()
    }

    /// It serves again.
    pub(super) fn serve(self, state: &Arc<State>) -> Result<Conn, CallFailure> {
        self.meter.reset();
        let seat = state.seat(self.spare, Arc::clone(&self.meter), CallPhase::Send)?;
        Ok(Conn {
            seat,
            sender: self.sender,
            driver: Some(self.driver),
            meter: self.meter,
        })
    }
}

/// Whether the whole body was read.
pub(super) fn is_whole(body: &Incoming) -> bool {
    body.is_end_stream()
}
