//! What the history knows of findings: the state that the last event of each left it in.

use std::collections::HashMap;

use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use jiff::Timestamp;

use super::file::{StoreError, StoreFile};
use crate::finding_book::{FindingKey, FindingState, KeptFinding};
use crate::history_record::FindingNote;
use crate::service::{ServiceKey, ServiceKind};

impl StoreFile {
    /// Every finding in the state in which it was reported last, by number.
    pub(crate) fn findings(&self) -> Result<Vec<KeptFinding>, StoreError> {
        let mut known = HashMap::new();
        self.read_rows(
            "SELECT kind, name, at, event, text, finding FROM event
             JOIN service ON service.id = event.service
             WHERE finding IS NOT NULL ORDER BY event.id",
            |row| {
                let (kind, note): (String, String) = (row.get(0)?, row.get(5)?);
                let kind = ServiceKind::from_word(&kind).unwrap_or(ServiceKind::Command);
                let service = ServiceKey::new(kind, row.get::<_, String>(1)?);
                let at = Timestamp::from_millisecond(row.get(2)?).unwrap_or_default();
                let (event, text): (String, String) = (row.get(3)?, row.get(4)?);
                if let Ok(note) = serde_json::from_str(&note) {
                    follow(&mut known, service, (at, &event), text, note);
                }
                Ok(())
            },
        )?;
        let mut kept: Vec<KeptFinding> = known.into_values().collect();
        kept.sort_by_key(|one| one.id);
        Ok(kept)
    }
}

/// What an event means for its finding. One that the history cannot describe is left out.
fn follow(
    known: &mut HashMap<FindingKey, KeptFinding>,
    service: ServiceKey,
    (at, event): (Timestamp, &str),
    text: String,
    note: FindingNote,
) {
    let state = match event {
        "opened" | "reopened" | "updated" => FindingState::Open,
        "resolved" => FindingState::Resolved,
        "suppressed" => FindingState::Suppressed,
        _ => return,
    };
    let Some(finding) = finding(&note, text) else {
        return;
    };
    let key = FindingKey {
        service,
        rule: note.rule,
        class: note.class,
        target: note.target,
    };
    let before = known.get(&key).filter(|_| event != "opened");
    let flaps = before.map_or(0, |before| before.flaps);
    let kept = KeptFinding {
        id: note.id,
        state,
        opened_at: before.map_or(at, |before| before.opened_at),
        told_at: at,
        flaps: flaps + u32::from(event == "reopened"),
        finding,
        key: key.clone(),
    };
    known.insert(key, kept);
}

fn finding(note: &FindingNote, why: String) -> Option<Finding> {
    let severity = match note.severity.as_str() {
        "warning" => Severity::Warning,
        "critical" => Severity::Critical,
        _ => return None,
    };
    Some(Finding {
        class: note.class.as_ref().and_then(|class| class.parse().ok()),
        target: note.target.as_deref().map(Into::into),
        count: note.count,
        why,
        ..Finding::new(&note.rule, note.pid?, note.comm.clone()?, severity)
    })
}
