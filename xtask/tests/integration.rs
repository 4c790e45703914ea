//! The chores that must hold for every change: tests, so that they need no build of their own.

#![expect(
    clippy::unwrap_used,
    reason = "tests panic, so that the line is kept; helpers of tests too"
)]

use std::process::Command;

#[track_caller]
fn holds(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(words)
        .output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn generated_files_are_fresh() {
    holds(&["gen", "--check"]);
}

#[test]
fn kernel_programs_are_fresh() {
    if !testkit::have("clang-14") || !testkit::have("llvm-objcopy-14") {
        return testkit::skip("needs clang-14 and llvm-objcopy-14");
    }
    holds(&["bpf", "--check"]);
}
