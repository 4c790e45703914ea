//! An origin as the contract writes it.

use fdguard_trace::{Place, Site};
use serde_json::{Value, json};

/// `origin` of a finding.
pub(super) fn value(site: &Site, now: u64) -> Value {
    let stack: Vec<Value> = site.stack.iter().map(frame).collect();
    json!({
        "culprit": site.culprit.as_ref().map(culprit),
        "stack": stack,
        "thread": site.open.first().map(|open| open.descriptor.tid),
        "live": site.open.len(),
        "opened": site.opened,
        "closed": site.closed,
        "oldest_age_seconds": site.oldest().map(|oldest| age(oldest, now)),
    })
}

fn culprit(place: &Place) -> Value {
    json!({
        "file": place.file,
        "function": place.function,
        "line": place.line,
        "language": place.language.name(),
    })
}

fn frame(place: &Place) -> Value {
    json!({
        "file": place.file,
        "function": place.function,
        "line": place.line,
        "module": place.module,
        "language": place.language.name(),
    })
}

/// Seconds since, to the millisecond.
pub(super) fn age(since: u64, now: u64) -> f64 {
    let nanos = now.saturating_sub(since);
    (nanos as f64 / 1e6).round() / 1e3
}
