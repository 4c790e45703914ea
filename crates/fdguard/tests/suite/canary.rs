//! The canary for tests.

use std::fs::File;

use fdguard_canary::Baseline;

use super::{CommandOutput, fdguard};

#[test]
fn r34_a_test_that_gives_everything_back_passes() {
    let baseline = Baseline::take();
    let file = File::open("/etc/passwd").unwrap();
    let left = baseline.compare().unwrap_err().left;
    assert_eq!(left.len(), 1);
    assert_eq!(
        (left[0].class.as_str(), left[0].target.as_str()),
        ("regular", "/etc/passwd")
    );
    drop(file);
    baseline.assert_restored();
}

#[test]
fn r34_a_number_that_was_given_to_another_file_is_told() {
    let first = File::open("/etc/passwd").unwrap();
    let baseline = Baseline::take();
    drop(first);
    let other = File::open("/etc/hostname").unwrap();
    let left = baseline.compare().unwrap_err().left;
    assert_eq!(left[0].target, "/etc/hostname");
    drop(other);
    baseline.assert_restored();
}

#[test]
#[should_panic(expected = "regular /etc/passwd")]
fn a_test_that_forgets_one_fails_with_its_name() {
    let baseline = Baseline::take();
    let _kept = File::open("/etc/passwd").unwrap();
    baseline.assert_restored();
}

#[test]
fn more_threads_than_before_are_named_as_a_reason_not_to_trust_it() {
    let baseline = Baseline::take();
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let file = File::open("/etc/passwd").unwrap();
        tell.send(()).unwrap();
        let _ended = held.recv();
        drop(file);
    });
    told.recv().unwrap();
    let why = baseline.compare().unwrap_err().to_string();
    assert!(why.contains("unreliable: this process has"), "{why}");
    drop(hold);
    other.join().unwrap();
    baseline.assert_restored();
}

/// Run by the test below, under the tracer.
#[test]
#[ignore = "one half of another test"]
fn inner() {
    let baseline = Baseline::take();
    let _kept = File::open("/etc/passwd").unwrap();
    baseline.assert_restored();
}

#[test]
fn r34_under_the_tracer_the_opening_line_is_told() {
    let line = include_str!("canary.rs")
        .lines()
        .position(|line| line.contains("fn inner()"));
    let line = line.unwrap() + 3;
    let mut command = fdguard();
    command
        .args(["trace", "-o", "/dev/null", "--"])
        .arg(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "suite::canary::inner"]);
    let said = CommandOutput::of(command.output().unwrap());
    let told = format!("regular /etc/passwd, opened at canary.rs:{line}");
    assert!(
        said.text().contains(&told),
        "{}\n{}",
        said.text(),
        said.stderr
    );
}
