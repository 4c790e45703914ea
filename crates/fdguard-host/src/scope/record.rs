//! The scope's entry in the host's registry: it outlives the host, names the closer, and keeps the
//! result of the close.
//!
//! Within a host the scope's own lock decides who closes it. The entry is for other hosts and for
//! later queries: errors with it are reported and stop nothing.

use fdguard_core::Text;
use fdguard_files::Registry;
use fdguard_files::registry::{Claim, Kind, NewRow, Owner, RowChange, RowEnd};
use fdguard_proc::ProcessId;
use tokio::task::{JoinHandle, spawn_blocking};

use super::CleanUp;

/// An entry that is being made, or is there.
#[derive(Debug)]
pub(super) struct Record {
    registry: Registry,
    id: String,
    added: JoinHandle<Result<(), String>>,
}

impl Record {
    /// Starts to create it.
    pub(super) fn create(registry: &Registry, id: &str, client: Option<&str>) -> Self {
        let mut new = NewRow::now(id, Kind::Scope);
        new.client = client.map(str::to_owned);
        new.host = ProcessId::current().ok();
        let adding = registry.clone();
        let add = move || adding.add(new).map(drop).map_err(|error| error.to_string());
        Self {
            registry: registry.clone(),
            id: id.to_owned(),
            added: spawn_blocking(add),
        }
    }

    /// Records who closes the scope, and which files it had. The claim is needed to record the
    /// result.
    pub(super) async fn claim(self, files: Vec<String>) -> Result<ClaimResult, String> {
        self.added.await.map_err(|error| error.to_string())??;
        let (registry, id) = (self.registry.clone(), self.id);
        let claim = spawn_blocking(move || claim(&registry, &id, files)).await;
        let claim = claim.map_err(|error| error.to_string())??;
        Ok(ClaimResult {
            registry: self.registry,
            claim,
        })
    }
}

fn claim(registry: &Registry, id: &str, files: Vec<String>) -> Result<Claim, String> {
    let words = |error: fdguard_files::registry::Error| error.to_string();
    if let Some(row) = registry.get(id).map_err(words)?
        && !files.is_empty()
    {
        let change = RowChange {
            files: Some(files.into_iter().map(Text::from).collect()),
            ..RowChange::default()
        };
        registry.update(id, row.version, change).map_err(words)?;
    }
    let process = ProcessId::current().map_err(|error| error.to_string())?;
    let owner = Owner {
        name: "scope".to_owned(),
        process,
    };
    registry.begin_closing(id, &owner).map_err(words)
}

/// The right to record the result of the close.
#[derive(Debug)]
pub(super) struct ClaimResult {
    registry: Registry,
    claim: Claim,
}

impl ClaimResult {
    /// Records the result.
    pub(super) async fn finish(self, clean_up: &CleanUp) -> Result<(), String> {
        let end = if clean_up.success {
            RowEnd::Closed
        } else {
            RowEnd::Failed
        };
        let reason = clean_up.reason.word();
        let receipt = serde_json::to_value(clean_up).ok();
        let finish = move || {
            let finished = self.registry.finish(&self.claim, end, reason, receipt);
            finished.map(drop).map_err(|error| error.to_string())
        };
        let finished = spawn_blocking(finish).await;
        finished.map_err(|error| error.to_string())?
    }
}
