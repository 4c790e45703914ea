//! Converts entries to and from columns.

use jiff::Timestamp;
use rusqlite::Row as Found;
use rusqlite::types::Value;

use super::row::{Kind, RegistryRow, RowFilter};
use super::state::{Owner, RowState};

/// The columns, in the order of [`read`].
pub(super) const COLUMNS: &str = "id, kind, client, state, owner, owner_process, reason, version, process, host, started_at, ended_at, files, receipt, keeper";

pub(super) fn read(found: &Found<'_>) -> rusqlite::Result<RegistryRow> {
    let owner = match (found.get(4)?, parsed(found, 5)?) {
        (Some(name), Some(process)) => Some(Owner { name, process }),
        _ => None,
    };
    let started_at = parsed(found, 10)?.ok_or_else(|| bad(10, "no time".into()))?;
    let files: String = found.get(12)?;
    let receipt: Option<String> = found.get(13)?;
    let receipt = receipt
        .map(|receipt| serde_json::from_str(&receipt))
        .transpose();
    Ok(RegistryRow {
        id: found.get(0)?,
        kind: word(found, 1, Kind::parse)?,
        client: found.get(2)?,
        state: word(found, 3, RowState::parse)?,
        owner,
        reason: found.get(6)?,
        version: found.get::<_, i64>(7)?.cast_unsigned(),
        process: parsed(found, 8)?,
        host: parsed(found, 9)?,
        keeper: parsed(found, 14)?,
        started_at,
        ended_at: parsed(found, 11)?,
        files: serde_json::from_str(&files).map_err(|error| bad(12, error.into()))?,
        receipt: receipt.map_err(|error| bad(13, error.into()))?,
    })
}

type Why = Box<dyn std::error::Error + Send + Sync>;

fn bad(column: usize, why: Why) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why)
}

pub(super) fn word<T>(
    found: &Found<'_>,
    column: usize,
    of: fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let word: String = found.get(column)?;
    of(&word).ok_or_else(|| bad(column, format!("unknown word {word}").into()))
}

fn parsed<T: std::str::FromStr<Err: Into<Why>>>(
    found: &Found<'_>,
    column: usize,
) -> rusqlite::Result<Option<T>> {
    let text: Option<String> = found.get(column)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(|error: T::Err| bad(column, error.into()))
}

pub(super) fn clause(filter: &RowFilter) -> (String, Vec<Value>) {
    let mut parts = Vec::new();
    let mut values = Vec::new();
    if let Some(kind) = filter.kind {
        parts.push("kind = ?".to_owned());
        values.push(Value::from(kind.as_str().to_owned()));
    }
    if let Some(client) = &filter.client {
        parts.push("client = ?".to_owned());
        values.push(Value::from(client.clone()));
    }
    if !filter.states.is_empty() {
        let marks = vec!["?"; filter.states.len()].join(", ");
        parts.push(format!("state IN ({marks})"));
        let words = filter.states.iter().map(|state| state.as_str().to_owned());
        values.extend(words.map(Value::from));
    }
    if parts.is_empty() {
        return (String::new(), values);
    }
    (format!("WHERE {}", parts.join(" AND ")), values)
}

/// A fixed number of digits, so that texts sort like times.
pub(super) fn text(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// As it will be read back.
pub(super) fn rounded(time: Timestamp) -> Timestamp {
    text(time).parse().unwrap_or(time)
}

pub(super) fn json(files: &[fdguard_core::Text]) -> rusqlite::Result<String> {
    serde_json::to_string(files)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
