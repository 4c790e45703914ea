//! The database of a registry, inside the vault. The rules are in `state`, which every change
//! consults first.

use std::path::PathBuf;

use fdguard_proc::process::Liveness;
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use rusqlite::{TransactionBehavior, config::DbConfig};

use super::columns::{COLUMNS, clause, json, read, rounded, text, word};
use super::error::Error;
use super::guard::Guard;
use super::row::{Claim, Kind, NewRow, RegistryRow, RowChange, RowCount, RowFilter};
use super::state::{Owner, RowEnd, RowState, RowStatus, RowTransition};

/// An open registry.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) path: PathBuf,
    pub(super) connection: Connection,
    pub(super) guard: Guard,
}

/// An end, with its notes.
pub(super) struct Ending {
    pub(super) end: RowEnd,
    pub(super) reason: String,
    pub(super) receipt: Option<serde_json::Value>,
    pub(super) at: Timestamp,
}

impl Store {
    /// Reads; fails if the file is not the one at its path.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.guard.check()?;
        work(&self.connection).map_err(|error| Error::sqlite(&self.path, error))
    }

    /// Runs a change as one transaction. The file is checked before and after: a change to a
    /// removed file is not a success.
    fn change<T>(
        &mut self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        self.guard.check()?;
        let path = &self.path;
        let sql = |error| Error::sqlite(path, error);
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sql)?;
        let done = work(&transaction).map_err(|failure| match failure {
            Failure::Sql(error) => sql(error),
            Failure::Rule(error) => *error,
        })?;
        transaction.commit().map_err(sql)?;
        self.guard.check()?;
        Ok(done)
    }

    pub(super) fn add(&mut self, new: &NewRow) -> Result<RegistryRow, Error> {
        let row = RegistryRow {
            id: new.id.clone(),
            kind: new.kind,
            client: new.client.clone(),
            state: RowState::Running,
            owner: None,
            reason: None,
            version: RowStatus::new().version,
            process: new.process,
            host: new.host,
            keeper: new.keeper,
            started_at: rounded(new.started_at),
            ended_at: None,
            files: new.files.clone(),
            receipt: None,
        };
        self.change(|transaction| {
            let sql = format!("INSERT INTO entries({COLUMNS}) VALUES(?1, ?2, ?3, ?4, NULL, NULL, NULL, ?5, ?6, ?7, ?8, NULL, ?9, NULL, ?10) ON CONFLICT(id) DO NOTHING");
            let added = transaction.prepare_cached(&sql)?.execute(params![
                row.id,
                row.kind.as_str(),
                row.client,
                row.state.as_str(),
                row.version.cast_signed(),
                row.process.as_ref().map(ToString::to_string),
                row.host.as_ref().map(ToString::to_string),
                text(row.started_at),
                json(&row.files)?,
                row.keeper.as_ref().map(ToString::to_string),
            ])?;
            if added == 0 {
                return Err(Failure::rule(Error::Exists { id: row.id.clone() }));
            }
            Ok(row)
        })
    }

    pub(super) fn get(&self, id: &str) -> Result<Option<RegistryRow>, Error> {
        self.read(|connection| one(connection, id))
    }

    pub(super) fn list(&self, filter: &RowFilter) -> Result<Vec<RegistryRow>, Error> {
        let (clause, values) = clause(filter);
        let sql = format!("SELECT {COLUMNS} FROM entries {clause} ORDER BY started_at, id");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(rusqlite::params_from_iter(values), read)?;
            rows.collect()
        })
    }

    pub(super) fn counts(&self, filter: &RowFilter) -> Result<Vec<RowCount>, Error> {
        let (clause, values) = clause(filter);
        let sql = format!(
            "SELECT kind, state, count(*) FROM entries {clause} GROUP BY kind, state ORDER BY kind, state"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let counts = statement.query_map(rusqlite::params_from_iter(values), |found| {
                Ok(RowCount {
                    kind: word(found, 0, Kind::parse)?,
                    state: word(found, 1, RowState::parse)?,
                    count: found.get::<_, i64>(2)?.cast_unsigned(),
                })
            })?;
            counts.collect()
        })
    }

    pub(super) fn update(
        &mut self,
        id: &str,
        version: u64,
        change: RowChange,
    ) -> Result<RegistryRow, Error> {
        self.change(|transaction| {
            let mut row = stepped(
                transaction,
                id,
                &RowTransition::Update { version },
                Some(version),
            )?;
            row.client = change.client.or(row.client);
            row.process = change.process.or(row.process);
            row.host = change.host.or(row.host);
            row.keeper = change.keeper.or(row.keeper);
            row.files = change.files.unwrap_or(row.files);
            write(transaction, row)
        })
    }

    /// `present` is the current closer and whether it is running; that check was made outside the
    /// transaction, so it is verified inside.
    pub(super) fn begin_closing(
        &mut self,
        id: &str,
        owner: &Owner,
        present: Option<&(Owner, Liveness)>,
    ) -> Result<Claim, Error> {
        self.change(|transaction| {
            let before = one(transaction, id)?.and_then(|row| row.owner);
            let lives = present
                .filter(|(asked, _)| before.as_ref() == Some(asked))
                .map_or(Liveness::Unknown, |(_, lives)| *lives);
            let step = RowTransition::BeginClosing {
                owner: owner.clone(),
                present: lives,
            };
            let row = stepped(transaction, id, &step, None)?;
            Ok(claim(write(transaction, row)?, owner, before))
        })
    }

    pub(super) fn take_over(
        &mut self,
        id: &str,
        version: u64,
        owner: &Owner,
    ) -> Result<Claim, Error> {
        self.change(|transaction| {
            let before = one(transaction, id)?.and_then(|row| row.owner);
            let step = RowTransition::TakeOver {
                version,
                owner: owner.clone(),
            };
            let row = stepped(transaction, id, &step, Some(version))?;
            Ok(claim(write(transaction, row)?, owner, before))
        })
    }

    pub(super) fn finish(&mut self, claim: &Claim, ending: Ending) -> Result<RegistryRow, Error> {
        self.change(|transaction| {
            let step = RowTransition::Finish {
                version: claim.version,
                end: ending.end,
            };
            let row = stepped(transaction, &claim.id, &step, Some(claim.version))?;
            write(transaction, ended(row, ending))
        })
    }

    /// Records entries that are gone, except those changed meanwhile.
    pub(super) fn lose(
        &mut self,
        lost: &[(String, u64, &'static str)],
        at: Timestamp,
    ) -> Result<Vec<RegistryRow>, Error> {
        self.change(|transaction| {
            let mut rows = Vec::with_capacity(lost.len());
            for (id, version, reason) in lost {
                let step = RowTransition::Lose { version: *version };
                match stepped(transaction, id, &step, Some(*version)) {
                    Ok(row) => {
                        let ending = Ending {
                            end: RowEnd::Failed,
                            reason: (*reason).to_owned(),
                            receipt: None,
                            at,
                        };
                        rows.push(write(transaction, ended(row, ending))?);
                    }
                    Err(Failure::Rule(_changed_meanwhile)) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(rows)
        })
    }

    pub(super) fn forget(&mut self, older_than: Timestamp) -> Result<usize, Error> {
        self.change(|transaction| {
            let sql = "DELETE FROM entries WHERE state IN ('closed', 'failed') AND ended_at < ?1";
            Ok(transaction.execute(sql, [text(older_than)])?)
        })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The last connection to close removes the WAL by name. If the file was replaced, the WAL
        // belongs to the new one.
        if self.guard.check().is_err() {
            let no_checkpoint = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            drop(self.connection.set_db_config(no_checkpoint, true));
        }
    }
}

/// Why a change is abandoned: everything in its transaction is rolled back.
pub(super) enum Failure {
    Sql(rusqlite::Error),
    Rule(Box<Error>),
}

impl Failure {
    fn rule(error: Error) -> Self {
        Self::Rule(Box::new(error))
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

fn one(connection: &Connection, id: &str) -> rusqlite::Result<Option<RegistryRow>> {
    let sql = format!("SELECT {COLUMNS} FROM entries WHERE id = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row([id], read).optional()
}

/// The right of an owner to end what a row is about.
fn claim(row: RegistryRow, owner: &Owner, took_over_from: Option<Owner>) -> Claim {
    Claim {
        id: row.id,
        version: row.version,
        owner: owner.clone(),
        took_over_from,
    }
}

/// The entry after a transition, not yet written.
fn stepped(
    transaction: &Transaction<'_>,
    id: &str,
    step: &RowTransition,
    given: Option<u64>,
) -> Result<RegistryRow, Failure> {
    let missing = || Failure::rule(Error::Missing { id: id.to_owned() });
    let mut row = one(transaction, id)?.ok_or_else(missing)?;
    let refused = |refusal| Failure::rule(Error::refused(id, refusal, given, row.version));
    let next = row.standing().after(step).map_err(refused)?;
    (row.state, row.owner, row.version) = (next.state, next.owner, next.version);
    Ok(row)
}

/// Overwrites exactly the previous version of an entry.
fn write(transaction: &Transaction<'_>, row: RegistryRow) -> Result<RegistryRow, Failure> {
    let sql = "UPDATE entries SET client = ?3, state = ?4, owner = ?5, owner_process = ?6, reason = ?7, version = version + 1,
               process = ?8, host = ?9, ended_at = ?10, files = ?11, receipt = ?12, keeper = ?13 WHERE id = ?1 AND version = ?2";
    let changed = transaction.prepare_cached(sql)?.execute(params![
        row.id,
        (row.version - 1).cast_signed(),
        row.client,
        row.state.as_str(),
        row.owner.as_ref().map(|owner| &owner.name),
        row.owner.as_ref().map(|owner| owner.process.to_string()),
        row.reason,
        row.process.as_ref().map(ToString::to_string),
        row.host.as_ref().map(ToString::to_string),
        row.ended_at.map(text),
        json(&row.files)?,
        row.receipt.as_ref().map(ToString::to_string),
        row.keeper.as_ref().map(ToString::to_string),
    ])?;
    if changed == 1 {
        return Ok(row);
    }
    let (id, given) = (row.id, row.version - 1);
    Err(Failure::rule(Error::Stale {
        id,
        given,
        now: given + 1,
    }))
}

fn ended(mut row: RegistryRow, ending: Ending) -> RegistryRow {
    row.reason = Some(ending.reason);
    row.receipt = ending.receipt;
    row.ended_at = Some(rounded(ending.at));
    row
}
