//! After a host was killed: what it had is compared with what is there. Its keepers end their trees by themselves, unless one of a tree
//! holds its keeper. What lives on although its host is gone is ended here, by its identity and never by its number alone: what is below
//! a keeper of the registry, the program of a session, and whatever carries the mark of a tree of that host.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use fdguard_files::registry::{
    ChangedRow, Kind, LeftoverRow, Liveness, OwnerId, Registry, RegistryRow, RowFilter,
};
use fdguard_process::identity;
use fdguard_process::sweep::{count_trees_of, end_kept_by, end_trees_of};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::record::{FILE, is_kept};
use super::{Host, Inner};
use crate::Error;

/// The longest that the end of one tree is waited for. KILL takes milliseconds.
const LONGEST: Duration = Duration::from_secs(2);

/// What a comparison of the registry with the processes found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReconcileOutcome {
    /// `fdguard.reconcile/1`.
    pub schema: &'static str,
    /// RFC 3339.
    pub at: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// Entries that ended by it, or would.
    pub changed: Vec<RegistryFinding>,
    /// Entries whose programs live on although nobody keeps them; these were killed, or would be.
    pub killed: Vec<RegistryFinding>,
    /// Entries that somebody else has to see to.
    pub left: Vec<RegistryFinding>,
    /// Entries whose processes could not be looked at.
    pub unknown: Vec<RegistryFinding>,
    /// Entries that are as they should be.
    pub unchanged: usize,
    /// Processes of hosts that are gone; these were killed, or would be.
    pub processes_killed: usize,
    /// Of these, such as could not be ended.
    pub processes_left: usize,
}

impl ReconcileOutcome {
    /// Whether every entry is as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let found = [&self.changed, &self.killed, &self.left, &self.unknown];
        found.iter().all(|list| list.is_empty()) && self.processes_killed + self.processes_left == 0
    }
}

/// An entry and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegistryFinding {
    /// Which.
    pub id: String,
    /// `session`, `host`, `scope` or `call`.
    pub kind: &'static str,
    /// A code: `process_gone`, `host_gone`, `closing_owner_gone`, `orphaned`, `abandoned`, …
    pub reason: &'static str,
}

impl From<&ChangedRow> for RegistryFinding {
    fn from(changed: &ChangedRow) -> Self {
        Self {
            id: changed.id.clone(),
            kind: changed.kind.as_str(),
            reason: changed.reason,
        }
    }
}

impl From<&LeftoverRow> for RegistryFinding {
    fn from(left: &LeftoverRow) -> Self {
        Self {
            id: left.id.clone(),
            kind: left.kind.as_str(),
            reason: left.reason,
        }
    }
}

/// Compares the registry in a state folder with the processes that are there, without a host. Where there is none, none is made.
pub fn reconcile(state: &Path, dry_run: bool) -> Result<ReconcileOutcome, Error> {
    let path = state.join(FILE);
    if !path.exists() {
        let id = path.display().to_string();
        return Err(Error::Unknown {
            what: "registry",
            id,
        });
    }
    run(&Registry::open(&path)?, Timestamp::now(), dry_run)
}

/// Compares, and ends what nobody keeps. What was killed is found gone by the next comparison.
pub(super) fn run(
    registry: &Registry,
    now: Timestamp,
    dry_run: bool,
) -> Result<ReconcileOutcome, Error> {
    let gone = gone_hosts(&registry.list(&RowFilter::open())?);
    let report = registry.reconcile(now, &|identity| identity.alive(), dry_run)?;
    let (mut killed, mut left) = (Vec::new(), Vec::new());
    let mut processes = Processes::default();
    for found in &report.left {
        let is_killed = kill_unkept(registry, &found.id, dry_run, &mut processes)?;
        let list = if is_killed { &mut killed } else { &mut left };
        list.push(RegistryFinding::from(found));
    }
    for host in gone {
        processes.end_trees_of(&host, dry_run);
    }
    Ok(ReconcileOutcome {
        schema: "fdguard.reconcile/1",
        at: now.to_string(),
        dry_run,
        changed: report.changed.iter().map(RegistryFinding::from).collect(),
        killed,
        left,
        unknown: report.unknown.iter().map(RegistryFinding::from).collect(),
        unchanged: report.unchanged,
        processes_killed: processes.killed,
        processes_left: processes.left,
    })
}

/// The hosts of open entries that are gone, of this boot: a number and a start of another mean nobody.
fn gone_hosts(rows: &[RegistryRow]) -> HashSet<OwnerId> {
    let Ok(own) = OwnerId::own() else {
        return HashSet::new();
    };
    let of_hosts = rows.iter().filter_map(|row| row.host.clone());
    let own_entries = rows.iter().filter(|row| row.kind == Kind::Host);
    let hosts: HashSet<_> = of_hosts
        .chain(own_entries.filter_map(|row| row.process.clone()))
        .filter(|host| host.boot == own.boot)
        .collect();
    let is_gone = |host: &OwnerId| host.alive() == Liveness::Gone;
    hosts.into_iter().filter(is_gone).collect()
}

/// What became of processes that nobody keeps.
#[derive(Clone, Copy, Debug, Default)]
struct Processes {
    killed: usize,
    left: usize,
}

impl Processes {
    fn end_trees_of(&mut self, host: &OwnerId, dry_run: bool) {
        if dry_run {
            self.killed += count_trees_of(host.pid, host.started);
            return;
        }
        let ended = end_trees_of(host.pid, host.started, LONGEST);
        self.killed += ended.killed;
        self.left += ended.left;
    }
}

/// Kills the processes of an entry whose host is gone; tells whether it did, or would.
fn kill_unkept(
    registry: &Registry,
    id: &str,
    dry_run: bool,
    processes: &mut Processes,
) -> Result<bool, Error> {
    let Some(row) = registry.get(id)? else {
        return Ok(false);
    };
    if is_kept(row.host.as_ref()) {
        return Ok(false);
    }
    let process = row.process.as_ref().and_then(pinned);
    let keeper = row
        .keeper
        .filter(|keeper| keeper.alive() == Liveness::Alive);
    let keeper = keeper.as_ref().and_then(pinned);
    if dry_run {
        return Ok(process.is_some() || keeper.is_some());
    }
    let kill = rustix::process::Signal::KILL.as_raw();
    let is_kept = keeper.is_some();
    if let Some(keeper) = keeper {
        let ended = end_kept_by(&keeper, LONGEST);
        processes.killed += ended.killed;
        processes.left += ended.left;
    }
    // Where its keeper was killed it is not below one.
    let is_killed = process.is_some_and(|it| identity::signal_checked(&it, kill).is_ok());
    Ok(is_killed || is_kept)
}

/// As the registry has it: without the inode of its pidfd. Boot, number and start are compared.
fn pinned(process: &OwnerId) -> Option<identity::ProcessId> {
    format!("{process}:-").parse().ok()
}

impl Host {
    /// Compares the registry with the processes that are there. With `dry_run` nothing is changed and nobody is ended.
    pub async fn reconcile(&self, dry_run: bool) -> Result<ReconcileOutcome, Error> {
        let Some(record) = self.inner.record() else {
            return Err(Error::Bad(
                "the host has no registry: it was started without a folder for its state"
                    .to_owned(),
            ));
        };
        record.reconcile(dry_run).await
    }
}

impl Inner {
    /// As often as idle sessions are looked for.
    pub(super) async fn reconcile_now(&self) {
        let Some(record) = self.record() else { return };
        // A failure is kept for the health.
        if let Ok(done) = record.reconcile(false).await {
            self.tell_reconciled(&done);
        }
    }

    pub(super) fn tell_reconciled(&self, done: &ReconcileOutcome) {
        let killed = done.killed.len() + done.processes_killed + done.processes_left;
        let is_news = !done.changed.is_empty() || killed > 0;
        if is_news {
            let event = fdguard_core::log_event::LogEvent::new("reconcile");
            let event = event.with("changed", done.changed.len());
            let event = event.with("killed", done.killed.len());
            let event = event.with("processes_killed", done.processes_killed);
            let event = event.with("processes_left", done.processes_left);
            self.tell(event.with("unknown", done.unknown.len()));
        }
    }
}
