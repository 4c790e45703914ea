//! Shared by the tests: taking snapshots, and comparing them with the victim's report.

use fdguard_core::document::SnapshotDocument;
use fdguard_core::{Snapshot, Summary};
use fdguard_probe::{Options, Probe};
use serde_json::Value;
use testkit::{Victim, VictimHolding};

mod churn;
mod everything;
mod exiter;
mod fake;
mod family;
mod kernel;
mod limit;
mod mkfds;
mod netns;
mod nobody;
mod open_files;
mod own;
mod radar;
mod reuse;
mod select_use;
mod verify;
mod watcher;
mod workload;

/// A snapshot as the command takes it.
pub(crate) fn look(pid: u32) -> Snapshot {
    let probe = Probe::new().unwrap();
    probe.snapshot(pid, Options::default()).unwrap()
}

/// The public document of a snapshot.
pub(crate) fn document(snapshot: &Snapshot) -> Value {
    let summary = Summary::summarize(snapshot);
    let text = serde_json::to_string(&SnapshotDocument::new(snapshot, &summary)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The numbers of a document's descriptors, as listed.
pub(crate) fn numbers(document: &Value) -> Vec<u32> {
    let fds = document["fds"].as_array().unwrap();
    fds.iter()
        .map(|record| u32::try_from(record["fd"].as_u64().unwrap()).unwrap())
        .collect()
}

/// The record of one descriptor.
pub(crate) fn record(document: &Value, fd: u32) -> &Value {
    let fds = document["fds"].as_array().unwrap();
    let found = fds.iter().find(|record| record["fd"] == fd);
    found.unwrap_or_else(|| panic!("descriptor {fd} is missing"))
}

/// The document matches the holder's report: the same numbers, with the same fields.
pub(crate) fn assert_says_the_same(document: &Value, holdings: &[VictimHolding]) {
    let mut held: Vec<u32> = holdings.iter().map(|holding| holding.fd).collect();
    held.sort_unstable();
    assert_eq!(numbers(document), held, "the numbers");
    let found: Vec<String> = holdings
        .iter()
        .flat_map(|holding| holding.disagreements(record(document, holding.fd)))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(document["count"], held.len());
    assert_eq!(document["lowest"], held[0]);
    assert_eq!(document["highest"], held[held.len() - 1]);
}

/// A victim's document agrees with the victim.
pub(crate) fn assert_exact(victim: &Victim) -> Value {
    let document = document(&look(victim.pid()));
    assert_says_the_same(&document, victim.holdings());
    document
}

/// The numbers of the test's own table, with what they refer to.
pub(crate) fn own_table() -> Vec<(u32, String)> {
    // The listing's own descriptor is already closed when the links are read, and drops out.
    testkit::listed(std::process::id())
        .into_iter()
        .filter_map(|fd| {
            let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
            Some((fd, link.to_string_lossy().into_owned()))
        })
        .collect()
}
