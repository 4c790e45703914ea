//! `fdguard run --once --protect`: closed descriptors stay closed, and a correct program sees no
//! difference.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    let flags = ["-O1", "-g", "-pthread", "-fno-optimize-sibling-calls"];
    testkit::c_variant("protected", "O1", &flags).expect("a victim that compiles")
}

/// The victim's output in this mode.
fn said_by(mut command: Command, mode: &str) -> CommandOutput {
    let dir = tempfile::tempdir().unwrap();
    command.arg(mode).arg(dir.path());
    CommandOutput::of(command.output().unwrap())
}

fn alone(mode: &str) -> CommandOutput {
    said_by(Command::new(victim()), mode)
}

fn protected_by(flags: &[&str], mode: &str) -> CommandOutput {
    let mut command = fdguard();
    command.args(["run", "--once"]).args(flags).arg("--");
    command.arg(victim());
    said_by(command, mode)
}

fn protected(mode: &str) -> CommandOutput {
    protected_by(&["--protect"], mode)
}

/// The same with one variable set.
fn protected_with(name: &str, value: &str, mode: &str) -> CommandOutput {
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--"]);
    command.arg(victim()).env(name, value);
    said_by(command, mode)
}

/// The program behaves the same with and without protection; returns the report.
fn same(mode: &str, least: usize) -> String {
    let (without, with) = (alone(mode), protected(mode));
    assert_eq!((without.code, with.code), (0, 0), "{}", with.stderr);
    assert!(
        without.text().lines().count() >= least,
        "{}",
        without.text()
    );
    assert_eq!(with.text(), without.text());
    with.stderr
}

#[test]
fn r41_every_call_on_a_closed_number_fails_as_it_would_without_a_tombstone() {
    let told = same("stale", 120);
    assert!(told.contains("prevented: fd "), "{told}");
    assert!(told.contains("use-after-close"), "{told}");
}

/// A close in its table took the descriptor from the process, whose own close then failed.
#[test]
fn r41_a_thread_with_a_table_of_its_own_takes_nothing_from_the_process() {
    let told = same("apart", 3);
    assert!(!told.contains("prevented"), "{told}");
    let kept = alone("apart");
    let line = "left 1, written 1, closed 0, kept 0";
    assert_eq!(kept.text().matches(line).count(), 3, "{}", kept.text());
}

#[test]
fn r41_a_number_is_kept_for_the_last_closes_and_then_given_out_again() {
    // A program that never had more than a few open: few are quarantined, because it may have
    // little room.
    let said = protected("evict");
    let mut words = said.text().split_whitespace();
    let turns: u32 = words.nth(4).unwrap().parse().unwrap();
    assert!(said.text().starts_with("grave 1, "), "{}", said.text());
    assert!((20..=32).contains(&turns), "{}", said.text());
    assert!(said.text().ends_with("given out again 1\n"));
}

#[test]
fn r41_how_many_and_for_how_long_can_be_chosen() {
    let with = protected_with;
    let many = with("FDGUARD_PROTECT_KEEP", "256", "evict");
    let turns = many.text().split_whitespace().nth(4);
    let turns: u32 = turns.unwrap().parse().unwrap();
    assert!((200..=300).contains(&turns), "{}", many.text());
    let few = with("FDGUARD_PROTECT_KEEP", "8", "evict");
    assert!(
        few.text().starts_with("grave 1, free after 8\n"),
        "{}",
        few.text()
    );
    let short = with("FDGUARD_PROTECT_AGE", "10", "age");
    assert_eq!(short.text(), "grave 1, after its time 0\n");
    assert_eq!(protected("age").text(), "grave 1, after its time 1\n");
}

#[test]
fn r41_a_signal_to_us_is_for_the_program() {
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--"]);
    command.args(["sh", "-c", "echo ready; exec sleep 600"]);
    command.stdout(Stdio::piped());
    let mut runner = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(runner.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = Pid::from_child(&runner);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn r41_a_child_that_loses_the_library_is_told() {
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--", "sh", "-c"]);
    command.arg("exec env -i sleep 3");
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 0);
    assert!(
        said.stderr
            .starts_with("fdguard: not protected: sleep (pid "),
        "{}",
        said.stderr
    );
}

#[test]
fn r41_protection_never_makes_a_program_run_out() {
    same("limit", 6);
}

#[test]
fn r41_numbers_stay_below_1024_for_programs_that_select() {
    assert_eq!(same("select", 1), "");
}

#[test]
fn r41_fork_vfork_spawn_and_exec() {
    let said = alone("family");
    assert!(said.text().contains("child reads stale -1 9"));
    same("family", 15);
}

#[test]
fn r41_ranges_are_really_closed_and_protection_goes_on_after_them() {
    same("range", 13);
}

#[test]
fn r41_dup2_takes_a_tombstone_as_it_takes_a_free_number() {
    same("replace", 20);
}

#[test]
fn r41_streams_and_dirs_that_the_c_library_closes() {
    same("streams", 14);
}

#[test]
fn r41_threads_that_close_twice_close_nobody_elses() {
    // The others close up to 195 numbers between the two closes, however they are scheduled.
    let said = protected_with("FDGUARD_PROTECT_KEEP", "256", "threads");
    assert_eq!(
        said.text(),
        "wrong 0, second closes 0, living 0\nroom for 512\n",
        "{}",
        said.stderr
    );
}

#[test]
fn r41_a_close_under_an_owner_wakes_it_and_is_done_once() {
    for mode in ["stranger", "stranger-ignoring"] {
        woken_and_closed(mode);
    }
}

/// Regression: a thread that wrote between the end of the connection and the placeholder was killed
/// by SIGPIPE.
fn woken_and_closed(mode: &str) {
    let said = protected(mode);
    let expected = "\
owner receives 0 0
owner sends -1 9
owner closes -1 9
stranger closed 0
peer sees the end 0 0
other number 1, socket gone 1
size 0
stranger closes again -1 9
owner polls 1 0
owner reads -1 9
owner writes -1 9
stranger closed 0
peer sees the end 0 0
other number 1, socket gone 1
size 0
stranger closes again -1 9
";
    assert_eq!((said.code, said.text()), (0, expected), "{}", said.stderr);
    let told = &said.stderr;
    for part in [
        "critical stranger-close  prevented: fd ",
        "double-close  prevented: ",
        "use-after-close  prevented: ",
        "2 stranger-close",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn r41_a_close_that_races_with_its_owners_return_is_done_by_one_of_them() {
    let said = protected("race");
    assert_eq!((said.code, said.text()), (0, "left 0\n"));
}

#[test]
fn r41_a_writer_that_a_signal_would_end_is_not_woken() {
    same("sending", 3);
}

#[test]
fn r41_databases_have_numbers_of_their_own_and_keep_their_locks() {
    let said = protected_by(&["--protect", "--shield", "*.ledger"], "band");
    let expected = "\
a.db high 1 below 1 cloexec 0
a.db high 1 below 1 cloexec 1
a.db-wal high 1 below 1 cloexec 0
b.sqlite3 high 1 below 1 cloexec 1
plain high 0 below 1 cloexec 0
books.ledger high 1 below 1 cloexec 1
other low ones 0
still locked 1
to read: high 0
";
    assert_eq!(said.text(), expected);
}

#[test]
fn r41_a_daemon_that_closes_every_number_is_no_misuse_at_any_level() {
    let said = protected_by(&["--protect=fatal"], "sweep");
    assert_eq!(
        (said.code, said.text()),
        (0, "closed 0\n"),
        "{}",
        said.stderr
    );
    assert!(!said.stderr.contains("critical"), "{}", said.stderr);
}

#[test]
fn r41_fatal_ends_the_program_after_its_report_was_written() {
    let said = protected_by(&["--protect=fatal"], "stale-write");
    assert_eq!(said.code, 134, "{}", said.stderr);
    let told = &said.stderr;
    assert!(told.contains("use-after-close  prevented: fd "), "{told}");
    assert!(told.contains("protected.c:"), "{told}");
}

#[test]
fn r41_disabled_and_absent_change_nothing() {
    for flags in [&["--protect=disabled"][..], &[]] {
        let said = protected_by(flags, "evict");
        assert_eq!(said.text(), alone("evict").text());
        assert_eq!(said.stderr, "");
    }
}

#[test]
fn r41_what_is_prevented_does_not_change_the_status_of_the_program() {
    let said = protected("stale-write");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(
        said.stderr
            .contains("fdguard: prevented 1 time: 1 use-after-close")
    );
    let mut command = fdguard();
    command.args(["run", "--once", "--protect", "--", "sh", "-c", "exit 7"]);
    assert_eq!(CommandOutput::of(command.output().unwrap()).code, 7);
}

#[test]
fn r41_a_program_that_cannot_be_protected_is_not_started() {
    let flags = ["-O1", "-static", "-pthread"];
    let Some(program) = testkit::c_variant("protected", "static", &flags) else {
        return testkit::skip("needs a static C library");
    };
    let dir = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    command
        .args(["run", "--once", "--protect", "--"])
        .arg(program);
    command.arg("band").arg(dir.path());
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!((said.code, said.text()), (3, ""), "{}", said.stderr);
    assert!(said.stderr.contains("statically linked"), "{}", said.stderr);
}

#[test]
fn r41_a_trace_tells_what_was_prevented() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let mut command = fdguard();
    command
        .args(["trace", "--protect", "--json", "-o"])
        .arg(&file);
    command
        .arg("--")
        .arg(victim())
        .arg("stale-write")
        .arg(dir.path());
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.code, 1, "{}", said.stderr);
    let found: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(found["hazards"][0]["rule"], "use-after-close");
    assert_eq!(found["hazards"][0]["prevented"], true);
    assert_eq!(
        found["hazards"][0]["user"]["culprit"]["function"],
        "stale_write"
    );
}
