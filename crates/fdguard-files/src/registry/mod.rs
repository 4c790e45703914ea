//! Registry of a host: its sessions, scopes, calls and hosts, in a file that outlives it.
//!
//! SQLite runs in a [vault](crate::vault), where no stale descriptor of the process can reach it.
//! Several processes may open the registry. Every change names the version it is based on, exactly
//! one closer wins, and an entry that has ended never changes. Counts are queried, never cached.
//! All functions block: an async host calls them from a blocking thread.
//!
//! No other code in the same process may open the file with SQLite: see [`Registry::open`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fdguard_probe::Probe;
use fdguard_proc::ProcessId;
use fdguard_proc::process::Liveness;
use jiff::Timestamp;

mod columns;
mod error;
mod guard;
mod open;
mod reconcile;
mod row;
pub mod state;
mod store;

pub use error::Error;
pub use reconcile::{ChangedRow, LeftoverRow, ReconcileReport};
pub use row::{Claim, Kind, NewRow, RegistryRow, RowChange, RowCount, RowFilter};
pub use state::{Owner, RowEnd, RowState};

use crate::holding::HolderRole;
use open::OpenedDatabase;
use store::{Ending, Store};

/// How long a change waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open registry. A clone is another handle to the same one; the last closes it.
#[derive(Clone, Debug)]
pub struct Registry(Arc<OpenedDatabase>);

impl Registry {
    /// Opens the registry, creating it if missing. A damaged file is rejected and never recreated.
    ///
    /// Opening it twice in a process returns the same registry: SQLite shares its state of a file,
    /// including descriptor numbers, between all connections of a process, and those numbers are
    /// valid only in the vault's table. For the same reason no other code in this process may open
    /// this file with SQLite meanwhile.
    pub fn open(path: &Path) -> Result<Self, Error> {
        OpenedDatabase::get(path).map(Self)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Adds an entry in state running.
    pub fn add(&self, new: NewRow) -> Result<RegistryRow, Error> {
        self.run(move |store| store.add(&new))
    }

    /// One entry.
    pub fn get(&self, id: &str) -> Result<Option<RegistryRow>, Error> {
        let id = id.to_owned();
        self.run(move |store| store.get(&id))
    }

    /// The entries that match a filter, the oldest first.
    pub fn list(&self, filter: &RowFilter) -> Result<Vec<RegistryRow>, Error> {
        let filter = filter.clone();
        self.run(move |store| store.list(&filter))
    }

    /// How many there are, by kind and state; zero counts are omitted.
    pub fn counts(&self, filter: &RowFilter) -> Result<Vec<RowCount>, Error> {
        let filter = filter.clone();
        self.run(move |store| store.counts(&filter))
    }

    /// Changes a running entry. The version is that of the row that the caller read; it is stale if
    /// another change came first.
    pub fn update(&self, id: &str, version: u64, change: RowChange) -> Result<RegistryRow, Error> {
        let id = id.to_owned();
        self.run(move |store| store.update(&id, version, change))
    }

    /// Acquires the right to close an entry. One of many callers gets it; the others get the owner,
    /// until its process is gone.
    pub fn begin_closing(&self, id: &str, owner: &Owner) -> Result<Claim, Error> {
        self.begin_closing_with(id, owner, &ProcessId::liveness)
    }

    /// The same, with another way to check whether a process is running.
    pub fn begin_closing_with(
        &self,
        id: &str,
        owner: &Owner,
        alive: &dyn Fn(&ProcessId) -> Liveness,
    ) -> Result<Claim, Error> {
        // Runs in the caller's thread: examining a process does not belong in the vault.
        let present = self.get(id)?.and_then(|row| row.owner);
        let present = present.map(|present| {
            let lives = alive(&present.process);
            (present, lives)
        });
        let (id, owner) = (id.to_owned(), owner.clone());
        self.run(move |store| store.begin_closing(&id, &owner, present.as_ref()))
    }

    /// Takes the right to close from an owner that is alive but stuck. The caller knows that; the
    /// version is that of the row it saw.
    pub fn take_over(&self, id: &str, version: u64, owner: &Owner) -> Result<Claim, Error> {
        let (id, owner) = (id.to_owned(), owner.clone());
        self.run(move |store| store.take_over(&id, version, &owner))
    }

    /// Ends a close: the outcome, the reason as a code, and the receipt.
    pub fn finish(
        &self,
        claim: &Claim,
        end: RowEnd,
        reason: &str,
        receipt: Option<serde_json::Value>,
    ) -> Result<RegistryRow, Error> {
        let ending = Ending {
            end,
            reason: reason.to_owned(),
            receipt,
            at: Timestamp::now(),
        };
        let claim = claim.clone();
        self.run(move |store| store.finish(&claim, ending))
    }

    /// Compares the entries with the running processes and ends those whose processes are gone. A
    /// dry run changes nothing.
    pub fn reconcile(
        &self,
        now: Timestamp,
        alive: &dyn Fn(&ProcessId) -> Liveness,
        dry_run: bool,
    ) -> Result<ReconcileReport, Error> {
        let rows = self.list(&RowFilter::open())?;
        let mut report = reconcile::plan(&rows, now, dry_run, alive);
        if dry_run || report.changed.is_empty() {
            return Ok(report);
        }
        // Uses maps: a killed host may have left a hundred thousand entries.
        let versions: BTreeMap<&str, u64> = rows
            .iter()
            .map(|row| (row.id.as_str(), row.version))
            .collect();
        let lost = report.changed.iter().filter_map(|changed| {
            let version = *versions.get(changed.id.as_str())?;
            Some((changed.id.clone(), version, changed.reason))
        });
        let lost: Vec<_> = lost.collect();
        let done = self.run(move |store| store.lose(&lost, now))?;
        let planned = report.changed.len();
        let done: BTreeSet<&str> = done.iter().map(|row| row.id.as_str()).collect();
        report
            .changed
            .retain(|changed| done.contains(changed.id.as_str()));
        report.changed_meanwhile = planned - report.changed.len();
        Ok(report)
    }

    /// Removes entries that ended before this time and returns their number.
    pub fn forget(&self, older_than: Timestamp) -> Result<usize, Error> {
        self.run(move |store| store.forget(older_than))
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let vault = self.0.vault.as_ref();
        let vault = vault.ok_or(crate::vault::Error::Gone)?;
        match vault.run(work)? {
            Err(Error::Busy { path, seconds, .. }) => {
                let holder = holder(&path);
                Err(Error::Busy {
                    path,
                    seconds,
                    holder,
                })
            }
            other => other,
        }
    }
}

/// The holder of a registry's lock, for people. A writer holds a lock in the WAL index.
fn holder(path: &Path) -> String {
    let unknown = || "no visible process holds the lock now".to_owned();
    let Some((_, ino)) = guard::id_at(&HolderRole::Shm.path(path)) else {
        return unknown();
    };
    let Ok(probe) = Probe::new() else {
        return unknown();
    };
    let locks = probe.locks().unwrap_or_default();
    let writes = locks
        .iter()
        .find(|lock| lock.ino == ino && lock.access == "WRITE" && !lock.waits);
    let Some(pid) = writes.and_then(|lock| lock.pid) else {
        return unknown();
    };
    let named = probe.name_of(pid);
    named.map_or_else(
        || format!("pid {pid} holds the lock"),
        |(comm, _)| format!("{} (pid {pid}) holds the lock", comm.to_lossy()),
    )
}
