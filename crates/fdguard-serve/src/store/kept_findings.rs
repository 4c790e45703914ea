//! What the history knows of findings: the state that the last event of each left it in.

use std::collections::HashMap;
use std::path::Path;

use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use jiff::Timestamp;
use rusqlite::Connection;

use super::attachments;
use super::file::{StoreError, StoreFile, open_to_read, sql};
use crate::finding_book::{FindingKey, FindingRecord, FindingState, KeptFinding};
use crate::history_record::FindingNote;
use crate::service::{ServiceKey, ServiceKind};

/// The most findings that are read at a time, the latest.
const MOST: usize = 2000;

impl StoreFile {
    /// Every finding in the state in which it was reported last, by number. Of several with one
    /// key, the latest.
    pub(crate) fn findings(&self) -> Result<Vec<KeptFinding>, StoreError> {
        let all = read(&self.connection).map_err(|source| sql(&self.options.path, source))?;
        let by_key: HashMap<FindingKey, KeptFinding> = all
            .into_iter()
            .map(|kept| (kept.key.clone(), kept))
            .collect();
        let mut kept: Vec<KeptFinding> = by_key.into_values().collect();
        kept.sort_by_key(|one| one.id);
        Ok(kept)
    }
}

/// The findings of a history that are over or accepted, by number.
pub(crate) fn read_findings(path: &Path) -> Result<Vec<FindingRecord>, StoreError> {
    let connection = open_to_read(path)?;
    let mut all = read(&connection).map_err(|source| sql(path, source))?;
    all.retain(|kept| kept.state != FindingState::Open);
    let beyond = all.len().saturating_sub(MOST);
    let latest = all.into_iter().skip(beyond);
    Ok(latest.map(KeptFinding::into_record).collect())
}

/// All findings, by number.
fn read(connection: &Connection) -> rusqlite::Result<Vec<KeptFinding>> {
    let mut known: HashMap<u64, KeptFinding> = HashMap::new();
    let mut statement = connection.prepare(
        "SELECT kind, name, at, event, text, finding FROM event
         JOIN service ON service.id = event.service
         WHERE finding IS NOT NULL ORDER BY event.id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, note): (String, String) = (row.get(0)?, row.get(5)?);
        let kind = ServiceKind::from_word(&kind).unwrap_or(ServiceKind::Command);
        let service = ServiceKey::new(kind, row.get::<_, String>(1)?);
        let at = Timestamp::from_millisecond(row.get(2)?).unwrap_or_default();
        let (event, text): (String, String) = (row.get(3)?, row.get(4)?);
        if let Ok(note) = serde_json::from_str(&note) {
            follow(&mut known, service, (at, &event), text, note);
        }
    }
    let mut attached = attachments::read(connection)?;
    let mut all: Vec<KeptFinding> = known.into_values().collect();
    all.sort_by_key(|one| one.id);
    for kept in &mut all {
        kept.attached = attached.remove(&kept.id).unwrap_or_default();
    }
    Ok(all)
}

/// What an event means for its finding. One that the history cannot describe is left out.
fn follow(
    known: &mut HashMap<u64, KeptFinding>,
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
    let before = known.get(&note.id).filter(|_| event != "opened");
    let flaps = before.map_or(0, |before| before.flaps);
    let kept = KeptFinding {
        id: note.id,
        state,
        opened_at: note
            .opened_at
            .unwrap_or_else(|| before.map_or(at, |before| before.opened_at)),
        told_at: at,
        flaps: flaps + u32::from(event == "reopened"),
        finding,
        key: FindingKey {
            service,
            rule: note.rule,
            class: note.class,
            target: note.target,
        },
        attached: attachments::Attachments::default(),
    };
    known.insert(note.id, kept);
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
