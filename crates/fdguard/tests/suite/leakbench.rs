//! LeakBench: small programs with known answers, through the public contract only.

use std::path::Path;
use std::process::Command;

use testkit::skip;

fn case(name: &str) {
    judged("watch", name);
}

/// The exit code of `score` when every case was skipped.
const SKIPPED: i32 = 77;

/// Runs one case with the bench's own judge. Each takes 20 seconds.
pub(super) fn judged(what: &str, name: &str) {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../leakbench");
    let output = Command::new(bench.join("score"))
        .args(["--bin", env!("CARGO_BIN_EXE_fdguard")])
        .args([what, "open", "--case", name])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(SKIPPED) {
        return skip(&format!("needs leakbench/setup for {name}"));
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 of 1 right"), "{said}");
}

#[test]
fn r13_a_leak_of_timers_is_found_with_its_class() {
    case("c-timerfd-session");
}

#[test]
fn r13_a_leak_of_database_connections_is_found_with_its_classes() {
    case("py-sqlite-wal-sessiondb");
}

#[test]
fn r13_a_leak_of_pipes_to_children_is_found_with_its_class() {
    case("py-popen-mcp-stdio");
}

#[test]
fn r15_a_cache_that_fills_to_its_cap_is_no_leak() {
    case("py-lru-files");
}

#[test]
fn r15_a_pool_that_warms_up_is_no_leak() {
    case("py-pool-warmup");
}

#[test]
fn r15_high_churn_is_no_leak() {
    case("py-churn");
}
