//! `fdguard serve` judges as `fdguard watch` does: one process under both.

use std::collections::BTreeSet;

use serde_json::Value;
use testkit::{Victim, VictimLaunch};

use super::serve::ServeProcess;
use super::watching::{Watching, diagnosis};

/// What the server shows about a process.
fn watched(overview: &Value, pid: u32) -> Option<Value> {
    let all = overview["watched"].as_array()?;
    all.iter().find(|one| one["pid"] == pid).cloned()
}

/// The rules, classes and targets of findings that are more than information.
fn found(findings: &[&Value]) -> BTreeSet<String> {
    let counts = findings.iter().filter(|one| one["severity"] != "info");
    let words = counts.map(|one| format!("{} {} {}", one["rule"], one["class"], one["target"]));
    words.collect()
}

fn found_by_serve(overview: &Value, pid: u32) -> BTreeSet<String> {
    let records = overview["findings"].as_array().unwrap().iter();
    let findings = records.map(|one| &one["finding"]);
    let own: Vec<&Value> = findings.filter(|one| one["pid"] == pid).collect();
    found(&own)
}

fn assert_same_judgement(overview: &Value, pid: u32, watch: &Value) {
    let served = watched(overview, pid).expect("a watched process");
    assert_eq!(served["verdict"], watch["verdict"], "{served} {watch}");
    let by_watch: Vec<&Value> = watch["findings"].as_array().unwrap().iter().collect();
    let by_watch = found(&by_watch);
    assert!(!by_watch.is_empty(), "{watch}");
    assert_eq!(found_by_serve(overview, pid), by_watch, "{watch}");
}

/// Under a command that no other test has, since a server sees the whole machine.
fn start(dir: &std::path::Path, soft: u64) -> Victim {
    let program = dir.join(format!("jd{}", std::process::id()));
    std::os::unix::fs::symlink(testkit::victim_path("leaker"), &program).unwrap();
    VictimLaunch::program(&program).nofile(soft).start()
}

#[test]
fn serve_and_watch_agree_on_a_leak_and_its_class() {
    let dir = tempfile::tempdir().unwrap();
    let served = ServeProcess::start();
    let mut victim = start(dir.path(), 20_000);
    let pid = victim.pid();
    let mut watching = Watching::over(&victim, &["--json", "--samples"]);
    let overview = loop {
        watching.leak(&mut victim, "1 file", 1);
        let overview = served.overview();
        if found_by_serve(&overview, pid)
            .iter()
            .any(|one| one.contains("\"leak\""))
        {
            break overview;
        }
    };
    let watch = diagnosis(&watching.stop());
    assert_eq!(watch["verdict"], "leaking", "{watch}");
    assert_eq!(watch["findings"][0]["class"], "regular", "{watch}");
    assert_same_judgement(&overview, pid, &watch);
    victim.finish();
}
