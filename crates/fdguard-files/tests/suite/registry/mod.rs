//! The registry: rules that hold across threads, processes and crashes.

use std::path::PathBuf;

use fdguard_files::Registry;
use fdguard_files::registry::{Kind, NewRow, Owner, RowState};
use fdguard_proc::ProcessId;
use tempfile::TempDir;

mod file;
mod processes;
mod rules;

struct Place {
    dir: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.db");
        Self { dir, path }
    }

    fn open(&self) -> Registry {
        Registry::open(&self.path).unwrap()
    }

    fn refused(&self) -> String {
        Registry::open(&self.path).unwrap_err().to_string()
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.dir.path().join(format!("registry.db{suffix}"))
    }
}

fn session(id: &str) -> NewRow {
    NewRow::now(id, Kind::Session)
}

fn owner(name: &str) -> Owner {
    Owner {
        name: name.to_owned(),
        process: ProcessId::current().unwrap(),
    }
}

/// A process that never existed.
fn nobody() -> ProcessId {
    ProcessId {
        start: 1,
        ..ProcessId::current().unwrap()
    }
}

fn state(registry: &Registry, id: &str) -> RowState {
    registry.get(id).unwrap().unwrap().state
}
