//! The registry of a host.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use fdguard_files::registry::{Kind, NewRow, Registry, RegistryRow, RowFilter, RowState};
use fdguard_host::host::Host;
use fdguard_host::receipt::SessionEndReason;
use fdguard_proc::ProcessId;

use super::host_harness::{
    assert_clean, bash, descriptors, eventually, lives, options, say, start,
};

async fn start_in(dir: &Path) -> Host {
    let mut options = options();
    options.state = Some(dir.to_owned());
    start(options).await
}

fn row(registry: &Registry, id: &str) -> RegistryRow {
    registry.get(id).unwrap().unwrap()
}

/// A process that ends when its input does.
fn sleeper() -> Child {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// An identity of no process.
fn nobody() -> ProcessId {
    let mut identity = ProcessId::current().unwrap();
    identity.start += 1;
    identity
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r51_each_session_has_an_entry_that_follows_it_to_its_receipt() {
    let before = descriptors();
    let dir = tempfile::tempdir().unwrap();
    let host = start_in(dir.path()).await;
    let registry = Registry::open(&dir.path().join("registry.db")).unwrap();
    let client = host.client(None, None).unwrap();
    let id = host.open(Some(&client), bash()).await.unwrap();
    let first = row(&registry, &id);
    let pid = host.session(&id).unwrap().pid;
    assert_eq!(
        (first.state, first.kind),
        (RowState::Running, Kind::Session)
    );
    assert_eq!(first.client.as_ref(), Some(&client));
    assert_eq!(first.process.map(|process| process.pid), pid);
    assert_eq!(first.host, ProcessId::current().ok());
    host.reset(&id).await.unwrap();
    let second = row(&registry, &id);
    let pid = host.session(&id).unwrap().pid;
    assert_eq!(second.process.map(|process| process.pid), pid);
    assert_eq!(host.reconcile(false).await.unwrap().unchanged, 2);
    let receipt = host.close(&id, SessionEndReason::Asked).await.unwrap();
    assert_clean(&receipt);
    let last = row(&registry, &id);
    assert_eq!(
        (last.state, last.reason.as_deref()),
        (RowState::Closed, Some("asked"))
    );
    assert_eq!(last.receipt, serde_json::to_value(&receipt).ok());
    assert_eq!(host.health().registry.unwrap().errors, 0);
    host.shut_down().await;
    let hosts = RowFilter {
        kind: Some(Kind::Host),
        ..RowFilter::default()
    };
    let hosts = registry.list(&hosts).unwrap();
    assert_eq!(hosts.len(), 1);
    assert_eq!(
        (hosts[0].state, hosts[0].reason.as_deref()),
        (RowState::Closed, Some("shutdown"))
    );
    drop((registry, host));
    eventually("everything is released", || {
        descriptors().is_subset(&before)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r51_what_a_dead_host_left_is_found_and_a_dry_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = start_in(dir.path()).await;
    let registry = Registry::open(&dir.path().join("registry.db")).unwrap();
    let mut orphan = sleeper();
    let mut stranger = sleeper();
    let add = |id: &str, process: ProcessId, host: ProcessId| {
        let mut new = NewRow::now(id, Kind::Session);
        (new.process, new.host) = (Some(process), Some(host));
        registry.add(new).unwrap();
    };
    add("gone", nobody(), nobody());
    add("orphan", ProcessId::read(orphan.id()).unwrap(), nobody());
    add(
        "kept",
        ProcessId::read(stranger.id()).unwrap(),
        ProcessId::current().unwrap(),
    );
    let mut reused = ProcessId::read(stranger.id()).unwrap();
    reused.start -= 1;
    add("reused", reused, nobody());
    let ids = |list: &[fdguard_host::host::RegistryFinding]| -> Vec<String> {
        list.iter().map(|found| found.id.clone()).collect()
    };
    let dry = host.reconcile(true).await.unwrap();
    assert_eq!(ids(&dry.changed), ["gone", "reused"]);
    assert_eq!(ids(&dry.killed), ["orphan"]);
    assert!(lives(orphan.id()));
    assert_eq!(row(&registry, "gone").state, RowState::Running);
    let wet = host.reconcile(false).await.unwrap();
    assert_eq!(
        (ids(&wet.changed), ids(&wet.killed)),
        (ids(&dry.changed), ids(&dry.killed))
    );
    assert_eq!(row(&registry, "gone").state, RowState::Failed);
    assert_eq!(
        row(&registry, "reused").reason.as_deref(),
        Some("process_gone")
    );
    orphan.wait().unwrap();
    let next = host.reconcile(false).await.unwrap();
    assert_eq!(ids(&next.changed), ["orphan"]);
    assert!(lives(stranger.id()), "whoever has the number is not hit");
    assert_eq!(row(&registry, "kept").state, RowState::Running);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    host.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r45_a_registry_that_vanishes_is_told_and_stops_no_session() {
    let dir = tempfile::tempdir().unwrap();
    let host = start_in(dir.path()).await;
    let id = host.open(None, bash()).await.unwrap();
    for file in std::fs::read_dir(dir.path()).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let next = host.open(None, bash()).await.unwrap();
    assert_eq!(say(&host, &next, "echo works").await, "works");
    assert_clean(&host.close(&id, SessionEndReason::Asked).await.unwrap());
    let health = host.health().registry.unwrap();
    assert!(health.errors >= 2, "{health:?}");
    assert!(health.last_error.unwrap().contains("deleted"));
    assert_clean(&host.shut_down().await[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_dir_for_its_state_a_host_has_no_registry() {
    let host = start(options()).await;
    assert_eq!(host.health().registry, None);
    assert_eq!(
        host.reconcile(true).await.unwrap_err().code(),
        "bad-request"
    );
    host.shut_down().await;
}
