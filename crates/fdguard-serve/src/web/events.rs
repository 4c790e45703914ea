//! Server-sent events: a line of news for every tick and every change of a finding.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// An event as it goes over the wire.
pub(crate) fn frame(name: &str, json: &str) -> Arc<str> {
    // JSON of serde has no newlines.
    format!("event: {name}\ndata: {json}\n\n").into()
}

/// The stream of one client. A client that reads too slowly gets the number of events it missed.
pub(super) fn stream(events: Receiver<Arc<str>>, closing: CancellationToken) -> Response {
    let next = |(mut events, closing): (Receiver<Arc<str>>, CancellationToken)| async move {
        let text = tokio::select! {
            event = events.recv() => match event {
                Ok(text) => text.to_string(),
                Err(RecvError::Lagged(missed)) => {
                    format!("event: missed\ndata: {{\"events\":{missed}}}\n\n")
                }
                Err(RecvError::Closed) => return None,
            },
            () = tokio::time::sleep(HEARTBEAT) => ": still here\n\n".to_owned(),
            () = closing.cancelled() => return None,
        };
        Some((Ok::<_, Infallible>(Bytes::from(text)), (events, closing)))
    };
    let first = futures_util::stream::once(async {
        Ok::<_, Infallible>(Bytes::from_static(b"retry: 3000\n\n"))
    });
    let rest = futures_util::stream::unfold((events, closing), next);
    let all = futures_util::StreamExt::chain(first, rest);
    let mut response = Response::new(Body::from_stream(all));
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
