//! Metrics that are pushed, for hosts that cannot be scraped: Prometheus remote write, and OTLP
//! over HTTP. Both are protocol buffers, encoded here: a few dozen lines instead of a generated
//! crate.

mod otlp;
mod otlp_units;
mod protobuf;
mod pushed_series;
mod remote_write;

pub(crate) use otlp::encode as encode_otlp;
pub(crate) use pushed_series::{PushedSeries, Workloads};
pub(crate) use remote_write::encode as encode_remote_write;

use http::{HeaderName, header};
use jiff::Timestamp;

use crate::metric_sink::MetricSeries;

/// Where OTLP is received if an address has no path.
pub(crate) const OTLP_PATH: &str = "/v1/metrics";
/// Where Prometheus and VictoriaMetrics receive remote write.
pub(crate) const REMOTE_WRITE_PATH: &str = "/api/v1/write";

/// What a push has.
#[derive(Debug)]
pub(crate) struct MetricPush<'a> {
    /// The name of this host.
    pub(crate) host: &'a str,
    /// When the values were read.
    pub(crate) taken_at: Timestamp,
    /// When the counters were 0.
    pub(crate) started_at: Timestamp,
    /// All series; those without a value end.
    pub(crate) series: &'a [MetricSeries],
    /// The containers and pods of services.
    pub(crate) workloads: &'a Workloads,
}

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
