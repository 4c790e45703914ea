//! What ran when the history was written last: read by the next start.

use fdguard_proc::ProcKey;
use jiff::Timestamp;
use rusqlite::{OptionalExtension as _, params};

use super::file::{StoreError, StoreFile, service_id, sql};
use crate::past_services::{KeptService, ServingMoment};
use crate::service::{ServiceKey, ServiceKind};

/// What changed since the note before.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunningNote {
    pub(crate) moment: ServingMoment,
    /// New services, and those with another process or program.
    pub(crate) running: Vec<KeptService>,
    /// Those that no longer run.
    pub(crate) ended: Vec<ServiceKey>,
}

impl StoreFile {
    /// Writes down that fdguard serve runs.
    pub(crate) fn note_running(&mut self, note: &RunningNote) -> Result<(), StoreError> {
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            for key in &note.ended {
                transaction.execute(
                    "DELETE FROM running WHERE service IN
                     (SELECT id FROM service WHERE kind = ?1 AND name = ?2)",
                    [key.kind.word(), &key.name],
                )?;
            }
            for one in &note.running {
                let id = service_id(&transaction, &one.key)?;
                let program = one.program.as_ref();
                let program = program.and_then(|program| serde_json::to_string(program).ok());
                let ticks = i64::try_from(one.process.start_ticks).unwrap_or(i64::MAX);
                transaction.execute(
                    "INSERT OR REPLACE INTO running VALUES (?1, ?2, ?3, ?4)",
                    params![id, one.process.pid, ticks, program],
                )?;
            }
            let moment = &note.moment;
            transaction.execute(
                "INSERT OR REPLACE INTO serving VALUES (1, ?1, ?2, ?3)",
                params![
                    moment.at.as_millisecond(),
                    moment.boot.to_string(),
                    moment.uptime
                ],
            )?;
            transaction.commit()
        };
        write().map_err(|source| sql(&self.options.path, source))
    }

    /// What ran when it was written last; `None` in a new history.
    pub(crate) fn running(&self) -> Result<Option<(ServingMoment, Vec<KeptService>)>, StoreError> {
        let read = || -> rusqlite::Result<Option<(ServingMoment, Vec<KeptService>)>> {
            let serving = self.connection.query_row(
                "SELECT max(at, coalesce((SELECT max(at) FROM sample), at)), boot, uptime
                 FROM serving",
                [],
                |row| Ok((row.get(0)?, row.get::<_, String>(1)?, row.get(2)?)),
            );
            let Some((at, boot, uptime)) = serving.optional()? else {
                return Ok(None);
            };
            let Ok(boot) = boot.parse() else {
                return Ok(None);
            };
            let at = Timestamp::from_millisecond(at).unwrap_or_default();
            let mut statement = self.connection.prepare(
                "SELECT kind, name, pid, start_ticks, program FROM running
                 JOIN service ON service.id = running.service",
            )?;
            let rows = statement.query_map([], |row| {
                let kind: String = row.get(0)?;
                let kind = ServiceKind::from_word(&kind).unwrap_or(ServiceKind::Command);
                let program: Option<String> = row.get(4)?;
                Ok(KeptService {
                    key: ServiceKey::new(kind, row.get::<_, String>(1)?),
                    process: ProcKey {
                        pid: row.get(2)?,
                        start_ticks: u64::try_from(row.get::<_, i64>(3)?).unwrap_or(0),
                    },
                    program: program.and_then(|text| serde_json::from_str(&text).ok()),
                })
            })?;
            let moment = ServingMoment { at, boot, uptime };
            Ok(Some((moment, rows.collect::<rusqlite::Result<_>>()?)))
        };
        read().map_err(|source| sql(&self.options.path, source))
    }
}
