//! Findings as messages to a webhook. Pure.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::finding_book::{FindingChange, FindingRecord};

/// Schema of a message.
pub(crate) const SCHEMA: &str = "fdguard.serve.finding-event/1";

/// The message about a change.
pub(crate) fn message(
    host: &str,
    change: FindingChange,
    record: &FindingRecord,
    now: Timestamp,
) -> Value {
    json!({
        "schema": SCHEMA,
        "sent_at": now.to_string(),
        "host": host,
        "change": change.word(),
        "finding": record,
    })
}
