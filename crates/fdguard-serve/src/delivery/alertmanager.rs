//! Findings as alerts of Alertmanager's API v2. Pure: a finding in, JSON out.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::finding_book::FindingRecord;

/// Alertmanager takes an alert for resolved when it was not repeated for this long: several times
/// the interval between repetitions.
const EXPIRES: SignedDuration = SignedDuration::from_mins(5);

/// One alert. A resolved finding ends when it was resolved, an open one some minutes from now.
pub(crate) fn alert(host: &str, record: &FindingRecord, now: Timestamp) -> Value {
    let finding = &record.finding;
    let key = &record.key;
    let mut labels = json!({
        "alertname": "FdguardFinding",
        "rule": key.rule,
        "severity": crate::severity_word(finding.severity),
        "service": key.service.name,
        "kind": key.service.kind.word(),
        "host": host,
    });
    // A label without a value would be dropped by the receiver.
    for (label, value) in [("class", &key.class), ("target", &key.target)] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            labels[label] = json!(value);
        }
    }
    let ends = record.resolved_at.unwrap_or(now + EXPIRES);
    json!({
        "labels": labels,
        "annotations": {
            "summary": format!("{}: {} in {}", key.rule, finding.comm.to_lossy(), key.service),
            "description": finding.why,
            "next_step": finding.next_step,
            "pid": finding.pid.to_string(),
            "count": finding.count.map_or_else(|| "unknown".to_owned(), |count| count.to_string()),
            "finding": record.id.to_string(),
        },
        "startsAt": record.opened_at.to_string(),
        "endsAt": ends.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use fdguard_core::Class;
    use fdguard_core::finding::Finding;
    use fdguard_core::lint::Severity;
    use jiff::Timestamp;

    use super::alert;
    use crate::finding_book::{FindingBook, FindingPace};
    use crate::service::{ServiceKey, ServiceKind};

    #[test]
    fn an_alert_has_the_labels_that_identify_it_and_ends_when_it_is_over() {
        let mut finding = Finding::new("leak", 7, "web".into(), Severity::Critical);
        finding.class = Some(Class::Pipe);
        finding.why = "47 pipes".to_owned();
        let service = ServiceKey::new(ServiceKind::Unit, "web.service");
        let mut book = FindingBook::new(FindingPace::default(), 0);
        let at = Timestamp::UNIX_EPOCH;
        book.see(&service, &finding, 1.0, at);
        let open = alert("h1", book.records()[0], at);
        let labels = &open["labels"];
        assert_eq!(labels["alertname"], "FdguardFinding");
        assert_eq!(
            (&labels["service"], &labels["kind"]),
            (&"web.service".into(), &"unit".into())
        );
        assert_eq!(
            (&labels["class"], &labels["host"]),
            (&"pipe".into(), &"h1".into())
        );
        assert!(labels.get("target").is_none() && labels.get("pid").is_none());
        assert_eq!(open["startsAt"], "1970-01-01T00:00:00Z");
        assert_eq!(open["endsAt"], "1970-01-01T00:05:00Z");
        let later: Timestamp = "1970-01-01T01:00:00Z".parse().unwrap();
        book.advance(3600.0, later);
        let over = alert("h1", book.records()[0], later);
        assert_eq!(over["endsAt"], "1970-01-01T01:00:00Z");
        assert_eq!(over["labels"], *labels, "the same alert");
    }
}
