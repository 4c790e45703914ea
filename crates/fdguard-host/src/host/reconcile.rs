//! After a host was killed: what it had is compared with what is there. Its keepers end their trees by themselves; a program that lives on although its
//! host is gone is ended here, by its identity and never by its number alone.

use std::path::Path;

use fdguard_files::registry::{Changed, Left, Registry};
use fdguard_process::identity;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::record::{FILE, is_kept};
use super::{Host, Inner};
use crate::Error;

/// What a comparison of the registry with the processes found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Reconciled {
    /// `fdguard.reconcile/1`.
    pub schema: &'static str,
    /// RFC 3339.
    pub at: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// Entries that ended by it, or would.
    pub changed: Vec<Finding>,
    /// Entries whose programs live on although nobody keeps them; these were killed, or would be.
    pub killed: Vec<Finding>,
    /// Entries that somebody else has to see to.
    pub left: Vec<Finding>,
    /// Entries whose processes could not be looked at.
    pub unknown: Vec<Finding>,
    /// Entries that are as they should be.
    pub unchanged: usize,
}

impl Reconciled {
    /// Whether every entry is as it should be.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let found = [&self.changed, &self.killed, &self.left, &self.unknown];
        found.iter().all(|list| list.is_empty())
    }
}

/// An entry and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Which.
    pub id: String,
    /// `session`, `host`, `scope` or `call`.
    pub kind: &'static str,
    /// A code: `process_gone`, `host_gone`, `closing_owner_gone`, `orphaned`, `abandoned`, …
    pub reason: &'static str,
}

impl From<&Changed> for Finding {
    fn from(changed: &Changed) -> Self {
        Self {
            id: changed.id.clone(),
            kind: changed.kind.as_str(),
            reason: changed.reason,
        }
    }
}

impl From<&Left> for Finding {
    fn from(left: &Left) -> Self {
        Self {
            id: left.id.clone(),
            kind: left.kind.as_str(),
            reason: left.reason,
        }
    }
}

/// Compares the registry in a state folder with the processes that are there, without a host. Where there is none, none is made.
pub fn reconcile(state: &Path, dry_run: bool) -> Result<Reconciled, Error> {
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
pub(super) fn run(registry: &Registry, now: Timestamp, dry_run: bool) -> Result<Reconciled, Error> {
    let report = registry.reconcile(now, &|identity| identity.alive(), dry_run)?;
    let (mut killed, mut left) = (Vec::new(), Vec::new());
    for found in &report.left {
        let is_killed = kill_unkept(registry, &found.id, dry_run)?;
        let list = if is_killed { &mut killed } else { &mut left };
        list.push(Finding::from(found));
    }
    Ok(Reconciled {
        schema: "fdguard.reconcile/1",
        at: now.to_string(),
        dry_run,
        changed: report.changed.iter().map(Finding::from).collect(),
        killed,
        left,
        unknown: report.unknown.iter().map(Finding::from).collect(),
        unchanged: report.unchanged,
    })
}

/// Kills the process of an entry whose host is gone; tells whether it did, or would.
fn kill_unkept(registry: &Registry, id: &str, dry_run: bool) -> Result<bool, Error> {
    let Some(row) = registry.get(id)? else {
        return Ok(false);
    };
    // Written without the inode of its pidfd: boot, number and start are compared.
    let process = row.process.map(|process| format!("{process}:-").parse());
    let Some(Ok(process)) = process else {
        return Ok(false);
    };
    if is_kept(row.host.as_ref()) {
        return Ok(false);
    }
    let kill = rustix::process::Signal::KILL.as_raw();
    Ok(dry_run || identity::signal_checked(&process, kill).is_ok())
}

impl Host {
    /// Compares the registry with the processes that are there. With `dry_run` nothing is changed and nobody is ended.
    pub async fn reconcile(&self, dry_run: bool) -> Result<Reconciled, Error> {
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

    pub(super) fn tell_reconciled(&self, done: &Reconciled) {
        let is_news = !(done.changed.is_empty() && done.killed.is_empty());
        if is_news {
            let event = fdguard_core::log_event::Event::new("reconcile");
            let event = event.with("changed", done.changed.len());
            let event = event.with("killed", done.killed.len());
            self.tell(event.with("unknown", done.unknown.len()));
        }
    }
}
