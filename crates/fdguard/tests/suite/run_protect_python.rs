//! The bug that protection is for: a TLS library writes into a database, because a stranger closed its socket.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{have, skip};

use super::{Said, fdguard};

const ROUNDS: usize = 3;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit/python")
        .join(name)
}

/// What the script says, of a fresh database each time.
fn said_by(mut command: Command, python: &Path, name: &str) -> Said {
    let folder = tempfile::tempdir().unwrap();
    command.arg(python).arg(script(name)).arg(folder.path());
    Said::of(command.output().unwrap())
}

fn corrupt_without_and_intact_with(python: &Path, name: &str) {
    for _ in 0..ROUNDS {
        let without = said_by(Command::new("env"), python, name);
        // The first bytes are the database's, then comes OpenSSL's alert.
        let alert = "CORRUPT 53 51 4c 69 74 17 03 03 00 13 ";
        assert!(without.text().starts_with(alert), "{}", without.text());
        let mut command = fdguard();
        command.args(["run", "--once", "--protect", "--"]);
        let with = said_by(command, python, name);
        assert!(
            with.text().starts_with("INTACT "),
            "{}{}",
            with.text(),
            with.stderr
        );
        let told = "critical stranger-close  prevented: fd ";
        assert!(with.stderr.contains(told), "{}", with.stderr);
        assert!(with.stderr.contains(name), "{}", with.stderr);
    }
}

#[test]
fn r41_tls_does_not_reach_the_database() {
    if !have("openssl") {
        return skip("needs openssl");
    }
    corrupt_without_and_intact_with(Path::new("python3"), "tls_recycle.py");
}

#[test]
fn r41_a_walk_over_the_pool_of_httpx_does_not_reach_the_database() {
    let python = std::env::home_dir()
        .unwrap_or_default()
        .join(".cache/leakbench/venv/bin/python");
    let has_httpx = Command::new(&python)
        .args(["-c", "import httpx"])
        .status()
        .is_ok_and(|status| status.success());
    if !has_httpx || !have("openssl") {
        return skip("needs LeakBench's Python with httpx, and openssl");
    }
    corrupt_without_and_intact_with(&python, "httpx_pool.py");
}

/// Runs one case by the bench's own judge. Each takes its own 20 seconds.
fn case(name: &str) {
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/leakbench");
    if !bench.join("score").is_file() {
        return skip("needs LeakBench beside the project");
    }
    let output = Command::new(bench.join("score"))
        .args(["--bin", env!("CARGO_BIN_EXE_fdguard")])
        .args(["protect", "open", "--case", name])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 of 1 right"), "{said}");
}

#[test]
fn r41_a_second_close_takes_nobodys_journal() {
    case("c-double-close");
}

#[test]
fn r41_a_late_record_stays_out_of_the_database() {
    case("py-tls-recycle");
}
