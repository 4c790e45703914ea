//! Prometheus remote write 1.0: a `WriteRequest`, compressed with snappy. Pure.

use super::MetricPush;
use super::protobuf::Message;

/// The value that ends a series: a NaN with a meaning of its own for Prometheus.
const STALE: u64 = 0x7ff0_0000_0000_0002;

/// The body of a request. `instance` is the host's name, as a scraped host has it.
pub(crate) fn encode(push: &MetricPush<'_>) -> Vec<u8> {
    let time = push.taken_at.as_millisecond();
    let mut request = Message::default();
    for series in push.series {
        let mut labels: Vec<(&str, &str)> = vec![
            ("__name__", series.name),
            ("instance", push.host),
            ("job", "fdguard"),
        ];
        labels.extend(
            series
                .labels
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        // Receivers may refuse labels that are not sorted.
        labels.sort_unstable();
        request.message(1, |one| {
            for (name, value) in labels {
                one.message(1, |label| {
                    label.text(1, name);
                    label.text(2, value);
                });
            }
            one.message(2, |sample| {
                let value = series.value.map_or(STALE, f64::to_bits);
                sample.fixed(1, value.to_le_bytes());
                sample.varint(2, time.cast_unsigned());
            });
        });
    }
    compress(&request.finish())
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let compressed = snap::raw::Encoder::new().compress_vec(bytes);
    // Only fails beyond 4 GiB, which --max-series excludes.
    compressed.unwrap_or_default()
}
