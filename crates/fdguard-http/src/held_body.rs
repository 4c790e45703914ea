//! Keeps a value alive until the last byte of a response was sent or the response was dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

struct HeldBody<K> {
    body: Body,
    _kept: K,
}

/// Keeps it until the response's body is dropped: when it was sent or its receiver disconnected.
#[must_use]
pub fn until_sent<K: Send + Unpin + 'static>(response: Response, kept: K) -> Response {
    response.map(|body| Body::new(HeldBody { body, _kept: kept }))
}

impl<K: Unpin> http_body::Body for HeldBody<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
