//! What was kept for findings: bundles of evidence and traces. The files are beside the history; it
//! knows their paths.

use std::collections::HashMap;
use std::path::PathBuf;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use super::file::{StoreError, StoreFile, sql};
use crate::trace_keeper::{TraceNote, TracedLine};

/// What was kept for a finding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attachments {
    pub(crate) evidence: Option<String>,
    pub(crate) trace: Option<TraceNote>,
}

/// A trace as it is written: the API does not show where its files are.
#[derive(Serialize, Deserialize)]
struct TraceRow {
    lines: Vec<TracedLine>,
    folded: bool,
    error: Option<String>,
    stem: PathBuf,
}

impl StoreFile {
    /// Remembers what was kept for a finding, beside what is known already.
    pub(crate) fn attach(
        &mut self,
        finding: u64,
        at: Timestamp,
        kept: &Attachments,
    ) -> Result<(), StoreError> {
        let trace = kept.trace.clone().map(|note| TraceRow {
            lines: note.lines,
            folded: note.folded,
            error: note.error,
            stem: note.stem,
        });
        let trace = trace.and_then(|row| serde_json::to_string(&row).ok());
        let finding = i64::try_from(finding).unwrap_or(i64::MAX);
        let written = self.connection.execute(
            "INSERT INTO attachment VALUES (?1, ?2, ?3, ?4) ON CONFLICT (finding) DO UPDATE SET
             at = excluded.at, evidence = coalesce(excluded.evidence, evidence),
             trace = coalesce(excluded.trace, trace)",
            params![finding, at.as_millisecond(), kept.evidence, trace],
        );
        written
            .map(drop)
            .map_err(|source| sql(&self.options.path, source))
    }
}

/// What was kept, by the number of the finding.
pub(super) fn read(connection: &Connection) -> rusqlite::Result<HashMap<u64, Attachments>> {
    let mut statement = connection.prepare("SELECT finding, evidence, trace FROM attachment")?;
    let rows = statement.query_map([], |row| {
        let finding = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
        let trace: Option<String> = row.get(2)?;
        let trace = trace.and_then(|text| serde_json::from_str::<TraceRow>(&text).ok());
        let trace = trace.map(|row| TraceNote {
            lines: row.lines,
            folded: row.folded,
            error: row.error,
            stem: row.stem,
        });
        let evidence = row.get(1)?;
        Ok((finding, Attachments { evidence, trace }))
    })?;
    rows.collect()
}
