//! Prometheus remote write 1.0: a `WriteRequest`, compressed with snappy. Pure.

use super::protobuf::Message;
use crate::metrics;
use crate::overview::Overview;

/// The body of a request. `instance` is the host's name, as a scraped host has it.
pub(crate) fn encode(overview: &Overview, max_series: usize) -> Vec<u8> {
    let time = overview.taken_at.as_millisecond();
    let mut request = Message::default();
    for series in metrics::series(overview, max_series) {
        let mut labels: Vec<(&str, &str)> = vec![
            ("__name__", &series.name),
            ("instance", &overview.host),
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
                sample.fixed(1, series.value.to_le_bytes());
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
