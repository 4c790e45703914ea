//! After a host was killed: compares what it had with what is running. Keepers end their own trees,
//! unless a program of the tree stops its keeper. Anything that outlives its host is killed here,
//! by process identity and never by pid alone: descendants of a keeper in the registry, the program
//! of a session, and every process with the mark of one of that host's trees.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use fdguard_files::registry::{ChangedRow, Kind, LeftoverRow, Registry, RegistryRow, RowFilter};
use fdguard_proc::ProcessId;
use fdguard_proc::process::Liveness;
use fdguard_process::sweep::{count_trees_of, end_kept_by, end_trees_of};
use jiff::Timestamp;
use rustix::process::Signal;
use schemars::JsonSchema;
use serde::Serialize;

use super::record::{FILE, is_kept};
use super::{Host, Inner};
use crate::Error;

/// Maximum wait for the end of one tree. KILL takes milliseconds.
const LONGEST: Duration = Duration::from_secs(2);

/// Result of comparing the registry with the running processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReconcileOutcome {
    /// `fdguard.reconcile/1`.
    pub schema: &'static str,
    /// Time of the comparison, RFC 3339.
    pub at: String,
    /// Nothing was changed (dry run).
    pub dry_run: bool,
    /// Entries that were marked as ended, or would be.
    pub changed: Vec<RegistryFinding>,
    /// Entries whose programs were still running without a keeper. They were killed, or would be.
    pub killed: Vec<RegistryFinding>,
    /// Entries that another process must handle.
    pub left: Vec<RegistryFinding>,
    /// Entries whose processes could not be examined.
    pub unknown: Vec<RegistryFinding>,
    /// Number of entries that were already correct.
    pub unchanged: usize,
    /// Processes of dead hosts that were killed, or would be.
    pub processes_killed: usize,
    /// Of these, the processes that could not be killed.
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

/// A registry entry and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RegistryFinding {
    /// Entry id.
    pub id: String,
    /// `session`, `host`, `scope` or `call`.
    pub kind: &'static str,
    /// Reason code: `process_gone`, `host_gone`, `closing_owner_gone`, `orphaned`, `abandoned`, …
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

/// Compares the registry in a state directory with the running processes, without a host. A missing
/// registry is not created.
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

/// Compares, and kills what has no keeper. The next comparison finds the killed processes gone.
pub(super) fn run(
    registry: &Registry,
    now: Timestamp,
    dry_run: bool,
) -> Result<ReconcileOutcome, Error> {
    let gone = gone_hosts(&registry.list(&RowFilter::open())?);
    let report = registry.reconcile(now, &ProcessId::liveness, dry_run)?;
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

/// The hosts of open entries that are gone, of this boot: a pid and start time of another boot
/// identify no process.
fn gone_hosts(rows: &[RegistryRow]) -> HashSet<ProcessId> {
    let Ok(own) = ProcessId::current() else {
        return HashSet::new();
    };
    let of_hosts = rows.iter().filter_map(|row| row.host.clone());
    let own_entries = rows.iter().filter(|row| row.kind == Kind::Host);
    let hosts: HashSet<_> = of_hosts
        .chain(own_entries.filter_map(|row| row.process.clone()))
        .filter(|host| host.boot == own.boot)
        .collect();
    let is_gone = |host: &ProcessId| host.liveness() == Liveness::Gone;
    hosts.into_iter().filter(is_gone).collect()
}

/// What happened to processes without a keeper.
#[derive(Clone, Copy, Debug, Default)]
struct Processes {
    killed: usize,
    left: usize,
}

impl Processes {
    fn end_trees_of(&mut self, host: &ProcessId, dry_run: bool) {
        if dry_run {
            self.killed += count_trees_of(host.key());
            return;
        }
        let ended = end_trees_of(host.key(), LONGEST);
        self.killed += ended.killed;
        self.left += ended.left;
    }
}

/// Kills the processes of an entry whose host is gone; returns whether it did, or would.
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
    let process = row.process;
    let keeper = row.keeper.filter(ProcessId::is_alive);
    if dry_run {
        return Ok(process.is_some() || keeper.is_some());
    }
    let is_kept = keeper.is_some();
    if let Some(keeper) = keeper {
        let ended = end_kept_by(keeper.key(), LONGEST);
        processes.killed += ended.killed;
        processes.left += ended.left;
    }
    // If its keeper was killed, it is not below one.
    let is_killed = process.is_some_and(|it| it.signal(Signal::KILL).is_ok());
    Ok(is_killed || is_kept)
}

impl Host {
    /// Compares the registry with the running processes. With `dry_run` nothing is changed or
    /// killed.
    pub async fn reconcile(&self, dry_run: bool) -> Result<ReconcileOutcome, Error> {
        let Some(record) = self.inner.record() else {
            return Err(Error::Bad(
                "the host has no registry: it was started without --state".to_owned(),
            ));
        };
        record.reconcile(dry_run).await
    }
}

impl Inner {
    /// Runs with every scan for idle sessions.
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
