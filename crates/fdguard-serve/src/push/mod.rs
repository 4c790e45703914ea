//! Metrics that are pushed, for hosts that cannot be scraped: Prometheus remote write, and OTLP
//! over HTTP. Both are protocol buffers, encoded here: a few dozen lines instead of a generated
//! crate.

mod otlp;
mod protobuf;
mod remote_write;

pub(crate) use otlp::encode as encode_otlp;
pub(crate) use remote_write::encode as encode_remote_write;

use http::{HeaderName, header};

/// Headers of a remote write.
pub(crate) fn remote_write_headers() -> Vec<(HeaderName, &'static str)> {
    let version = HeaderName::from_static("x-prometheus-remote-write-version");
    vec![
        (header::CONTENT_TYPE, "application/x-protobuf"),
        (header::CONTENT_ENCODING, "snappy"),
        (version, "0.1.0"),
    ]
}

/// Headers of OTLP.
pub(crate) fn otlp_headers() -> Vec<(HeaderName, &'static str)> {
    vec![(header::CONTENT_TYPE, "application/x-protobuf")]
}
