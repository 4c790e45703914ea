//! Reads the history: by `fdguard history`, and by the API.

use std::path::Path;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::Serialize;

use super::file::{StoreError, open_to_read, sql};
use crate::history_record::{HistoryEvent, HistorySample};
use crate::onset::{self, Onset};
use crate::overview::TargetTally;
use crate::service::{ServiceKey, ServiceKind};

/// Schema of the document.
pub(super) const HISTORY_SCHEMA: &str = "fdguard.history/1";
/// Schema of one moment.
const MOMENT_SCHEMA: &str = "fdguard.moment/1";
/// The most samples that are returned: more are thinned out.
const MOST_SAMPLES: usize = 5_000;

/// The history of one service.
#[derive(Clone, Debug, Serialize)]
pub struct ServiceHistory {
    /// `fdguard.history/1`.
    pub schema: &'static str,
    /// The service.
    pub service: ServiceKey,
    /// The first sample that is kept.
    pub from: Option<Timestamp>,
    /// The last.
    pub to: Option<Timestamp>,
    /// When growth began, and after what; absent if nothing grew.
    pub onset: Option<Onset>,
    /// Samples, oldest first.
    pub samples: Vec<HistorySample>,
    /// What happened, oldest first.
    pub events: Vec<HistoryEvent>,
    /// What was lost.
    pub losses: Vec<HistoryLoss>,
}

/// Rows that could not be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryLoss {
    /// When writing worked again.
    pub at: Timestamp,
    /// How many.
    pub rows: u64,
    /// Why.
    pub why: String,
}

/// What a service held at a moment that is kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceMoment {
    /// `fdguard.moment/1`.
    pub schema: &'static str,
    /// The service.
    pub service: ServiceKey,
    /// Its counts and classes.
    #[serde(flatten)]
    pub sample: HistorySample,
    /// Descriptors of its watched processes by class and target, largest first; absent while none
    /// of them was watched.
    pub targets: Option<Vec<TargetTally>>,
}

/// Every service of the history.
pub fn read_services(path: &Path) -> Result<Vec<ServiceKey>, StoreError> {
    let connection = open_to_read(path)?;
    let read = || -> rusqlite::Result<Vec<ServiceKey>> {
        let mut statement =
            connection.prepare("SELECT kind, name FROM service ORDER BY kind, name")?;
        let rows = statement.query_map([], service)?;
        rows.collect()
    };
    read().map_err(|error| sql(path, error))
}

/// The services that a name means, with their history since `since`. A name is exact, with or
/// without its kind (`unit web.service`); a unit may lack its suffix.
pub fn read_history(
    path: &Path,
    name: &str,
    since: Option<Timestamp>,
) -> Result<Vec<ServiceHistory>, StoreError> {
    let connection = open_to_read(path)?;
    let read = || -> rusqlite::Result<Vec<ServiceHistory>> {
        let mut statement =
            connection.prepare("SELECT kind, name, id FROM service ORDER BY kind, name")?;
        let all = statement.query_map([], |row| Ok((service(row)?, row.get::<_, i64>(2)?)))?;
        let mut found = Vec::new();
        for one in all {
            let (service, id) = one?;
            if is_meant(&service, name) {
                found.push(one_history(&connection, service, id, since)?);
            }
        }
        Ok(found)
    };
    read().map_err(|error| sql(path, error))
}

/// What a service held at the latest kept moment up to `at`; `None` if nothing that old is kept.
pub fn read_moment(
    path: &Path,
    service: &ServiceKey,
    at: Timestamp,
) -> Result<Option<ServiceMoment>, StoreError> {
    let connection = open_to_read(path)?;
    let read = || -> rusqlite::Result<Option<ServiceMoment>> {
        let mut statement = connection.prepare(
            "SELECT at, processes, open_fds, fd_limit, ratio, verdict, classes, targets
             FROM sample JOIN service ON service.id = sample.service
             WHERE kind = ?1 AND name = ?2 AND at <= ?3 ORDER BY at DESC LIMIT 1",
        )?;
        let values = params![service.kind.word(), service.name, at.as_millisecond()];
        let one = statement.query_row(values, |row| {
            let targets: Option<String> = row.get(7)?;
            Ok(ServiceMoment {
                schema: MOMENT_SCHEMA,
                service: service.clone(),
                sample: sample(row)?,
                targets: targets.and_then(|text| serde_json::from_str(&text).ok()),
            })
        });
        one.optional()
    };
    read().map_err(|error| sql(path, error))
}

fn is_meant(service: &ServiceKey, name: &str) -> bool {
    let with_kind = name.split_once([' ', ':']).and_then(|(kind, rest)| {
        let kind = ServiceKind::from_word(kind)?;
        Some(kind == service.kind && rest == service.name)
    });
    let is_unit = service.kind == ServiceKind::Unit;
    let is_short = || is_unit && service.name.strip_suffix(".service") == Some(name);
    with_kind.unwrap_or(false) || service.name == name || is_short()
}

fn one_history(
    connection: &Connection,
    service: ServiceKey,
    id: i64,
    since: Option<Timestamp>,
) -> rusqlite::Result<ServiceHistory> {
    let since = since.map_or(i64::MIN, Timestamp::as_millisecond);
    let samples = samples(connection, id, since)?;
    let events = events(connection, id, since)?;
    let losses = losses(connection, since)?;
    Ok(ServiceHistory {
        schema: HISTORY_SCHEMA,
        service,
        from: samples.first().map(|sample| sample.at),
        to: samples.last().map(|sample| sample.at),
        onset: onset::find(&samples, &events),
        samples: thinned(samples),
        events,
        losses,
    })
}

fn samples(connection: &Connection, id: i64, since: i64) -> rusqlite::Result<Vec<HistorySample>> {
    let mut statement = connection.prepare(
        "SELECT at, processes, open_fds, fd_limit, ratio, verdict, classes FROM sample
         WHERE service = ?1 AND at >= ?2 ORDER BY at",
    )?;
    let rows = statement.query_map(params![id, since], sample)?;
    rows.collect()
}

/// A row of time, processes, count, limit, share, verdict and classes.
fn sample(row: &Row<'_>) -> rusqlite::Result<HistorySample> {
    let classes: Option<String> = row.get(6)?;
    Ok(HistorySample {
        at: time(row, 0)?,
        processes: count(row, 1)?.unwrap_or(0),
        open_fds: count(row, 2)?,
        limit: count(row, 3)?,
        usage_ratio: row.get(4)?,
        verdict: row.get(5)?,
        classes: classes.and_then(|text| serde_json::from_str(&text).ok()),
        targets: None,
    })
}

fn events(connection: &Connection, id: i64, since: i64) -> rusqlite::Result<Vec<HistoryEvent>> {
    let mut statement = connection.prepare(
        "SELECT at, event, text, deploy, finding FROM event
         WHERE service = ?1 AND at >= ?2 ORDER BY at, id",
    )?;
    let rows = statement.query_map(params![id, since], |row| {
        let finding: Option<String> = row.get(4)?;
        Ok(HistoryEvent {
            at: time(row, 0)?,
            event: row.get(1)?,
            text: row.get(2)?,
            deploy: row.get(3)?,
            finding: finding.and_then(|text| serde_json::from_str(&text).ok()),
        })
    })?;
    rows.collect()
}

fn losses(connection: &Connection, since: i64) -> rusqlite::Result<Vec<HistoryLoss>> {
    let mut statement =
        connection.prepare("SELECT at, rows, why FROM loss WHERE at >= ?1 ORDER BY at")?;
    let rows = statement.query_map([since], |row| {
        Ok(HistoryLoss {
            at: time(row, 0)?,
            rows: count(row, 1)?.unwrap_or(0),
            why: row.get(2)?,
        })
    })?;
    rows.collect()
}

fn service(row: &Row<'_>) -> rusqlite::Result<ServiceKey> {
    let kind: String = row.get(0)?;
    let kind = ServiceKind::from_word(&kind).unwrap_or(ServiceKind::Command);
    Ok(ServiceKey::new(kind, row.get::<_, String>(1)?))
}

fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Timestamp> {
    let milliseconds: i64 = row.get(at)?;
    Ok(Timestamp::from_millisecond(milliseconds).unwrap_or_default())
}

fn count(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<u64>> {
    let number: Option<i64> = row.get(at)?;
    Ok(number.and_then(|number| u64::try_from(number).ok()))
}

/// Every nth sample of too many, and the last one.
fn thinned(samples: Vec<HistorySample>) -> Vec<HistorySample> {
    let step = samples.len() / MOST_SAMPLES + 1;
    let last = samples.len().saturating_sub(1);
    let every = samples.into_iter().enumerate();
    let every = every.filter(|(at, _)| at % step == 0 || *at == last);
    every.map(|(_, sample)| sample).collect()
}
