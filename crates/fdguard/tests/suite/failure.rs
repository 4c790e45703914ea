//! Failures: the exit code, one line and a hint on stderr, nothing on stdout.

use std::fs;
use std::io::Read as _;
use std::process::Stdio;

use serde_json::json;
use testkit::{Victim, is_root, skip};

use super::{CommandOutput, fdguard, run};

pub(crate) const USAGE: i32 = 2;
pub(crate) const COULD_NOT_LOOK: i32 = 3;

/// Checks the format of a failure.
pub(crate) fn assert_failed(said: &CommandOutput, code: i32) {
    assert_eq!(said.code, code, "{}", said.stderr);
    assert!(said.stdout.is_empty(), "{:?}", said.text());
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert!(lines[0].starts_with("fdguard: "), "{lines:?}");
    match lines[1..] {
        [] => {}
        [hint] => assert!(hint.starts_with("hint: "), "{lines:?}"),
        _ => panic!("{lines:?}"),
    }
}

/// An unused pid.
pub(crate) fn free_pid() -> u32 {
    (4_000_000..4_194_304)
        .find(|pid| !fs::exists(format!("/proc/{pid}")).unwrap())
        .unwrap()
}

#[test]
fn a_process_that_does_not_exist_cannot_be_looked_at() {
    let pid = free_pid().to_string();
    for args in [
        vec!["snap", &pid],
        vec!["snap", &pid, "--json"],
        vec!["snap", "-p", &pid, "--counts"],
        vec!["snap", &pid, "-F"],
        vec!["diff", &pid, &pid],
        vec!["snap", "--tree", &pid],
        vec!["snap", "--name", "no-such-command-here"],
    ] {
        let said = run(&args);
        assert_failed(&said, COULD_NOT_LOOK);
        assert!(said.stderr.contains("hint: "), "{args:?}: {}", said.stderr);
    }
    assert_eq!(
        run(["snap", &pid]).stderr.lines().next().unwrap(),
        format!("fdguard: no process {pid}")
    );
}

#[test]
fn a_kernel_thread_has_no_descriptors_to_look_at() {
    let stat = fs::read_to_string("/proc/2/stat").unwrap_or_default();
    if !stat.contains("(kthreadd)") {
        return skip("process 2 is no kernel thread here");
    }
    let said = run(["snap", "2"]);
    assert_failed(&said, COULD_NOT_LOOK);
    assert!(said.stderr.contains("kernel thread"), "{}", said.stderr);
}

#[test]
fn a_zombie_cannot_be_looked_at_and_its_parent_is_named() {
    let victim = Victim::of("parent").arg("0").arg("1").start();
    let zombie = victim.line()["children"][0]["pid"].to_string();
    let said = run(["snap", &zombie]);
    assert_failed(&said, COULD_NOT_LOOK);
    assert!(said.stderr.contains("zombie"), "{}", said.stderr);
    assert!(said.stderr.contains(&victim.pid().to_string()));
    victim.finish();
}

#[test]
fn what_is_no_process_number_is_wrong_usage() {
    for wrong in [
        "0",
        "-5",
        "99999999999",
        "abc",
        "",
        "1.5",
        "0x10",
        "4194305",
    ] {
        for args in [vec!["snap", wrong], vec!["snap", "-p", wrong]] {
            let said = run(&args);
            assert_failed(&said, USAGE);
            assert!(said.stderr.contains("hint: "), "{args:?}: {}", said.stderr);
        }
    }
}

#[test]
fn a_side_of_a_difference_that_is_neither_file_nor_number_is_told_so() {
    for wrong in ["0", "-5", "99999999999", "abc", "/no/such/file"] {
        let said = run(["diff", "--", wrong, "1"]);
        assert!(
            [USAGE, COULD_NOT_LOOK].contains(&said.code),
            "{}",
            said.stderr
        );
        assert_failed(&said, said.code);
    }
}

#[test]
fn unknown_words_are_wrong_usage_with_a_hint() {
    for args in [
        &["--frobnicate"][..],
        &["snap", "--jsom", "1"],
        &["snpa", "1"],
        &["snap"],
        &["diff"],
        &["diff", "1"],
        &["top", "--interval", "never"],
        &["completions", "tcsh-of-sorts"],
        &["snap", "1", "--all"],
        &["snap", "1", "--json", "-F"],
        &["snap", "1", "--counts", "--fds"],
        &["snap", "1", "--from", "x"],
        &["snap", "1", "--color", "sometimes"],
        &["snap", "1", "--via", "magic"],
        &["snap", "1", "-0"],
    ] {
        let said = run(args);
        assert_failed(&said, USAGE);
        assert!(said.stderr.contains("hint: "), "{args:?}: {}", said.stderr);
    }
    assert!(run(["snap", "--jsom", "1"]).stderr.contains("--json"));
}

#[test]
fn without_any_word_the_help_is_shown_as_wrong_usage() {
    let said = run::<&str>([]);
    assert_eq!(said.code, USAGE);
    assert!(said.stdout.is_empty());
    assert!(said.stderr.contains("snap"), "{}", said.stderr);
}

#[test]
fn the_live_view_without_a_terminal_is_wrong_usage() {
    let said = run(["top"]);
    assert_failed(&said, USAGE);
    assert!(said.stderr.contains("--once"), "{}", said.stderr);
}

#[test]
fn a_file_that_is_no_snapshot_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let other = json!({"schema": "fdguard.diagnosis/1", "taken_at": "2026-01-01T00:00:00Z"});
    let newer = json!({"schema": "fdguard.snapshot/2"});
    let short = json!({"schema": "fdguard.snapshot/1", "taken_at": "2026-01-01T00:00:00Z"});
    let cases: [(&str, Vec<u8>); 10] = [
        ("empty", Vec::new()),
        ("text", b"hello\n".to_vec()),
        ("binary", vec![0, 159, 146, 150]),
        ("number", b"12".to_vec()),
        ("list", b"[]".to_vec()),
        ("object", b"{}".to_vec()),
        ("other", other.to_string().into_bytes()),
        ("newer", newer.to_string().into_bytes()),
        ("short", short.to_string().into_bytes()),
        (
            "deep",
            [b"[".repeat(100_000), b"]".repeat(100_000)].concat(),
        ),
    ];
    for (name, content) in cases {
        let path = dir.path().join(name);
        fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap();
        for args in [
            vec!["snap", "--from", path],
            vec!["snap", "--json", "--from", path],
            vec!["diff", path, path],
        ] {
            let said = run(&args);
            assert_failed(&said, COULD_NOT_LOOK);
            assert!(said.stderr.contains(path), "{args:?}: {}", said.stderr);
        }
    }
    for path in ["/no/such/file", dir.path().to_str().unwrap()] {
        assert_failed(&run(["snap", "--from", path]), COULD_NOT_LOOK);
        assert_failed(&run(["diff", path, "1"]), COULD_NOT_LOOK);
    }
}

#[test]
fn a_hostile_file_name_does_not_reach_the_terminal_as_a_command() {
    let said = run(["snap", "--from", "/no/\u{1b}[31msuch\nfile"]);
    assert!(!said.stderr.contains('\u{1b}'), "{:?}", said.stderr);
    assert_failed(&said, COULD_NOT_LOOK);
    let said = run(["snap", "--name", "\u{1b}]0;evil\u{7}\nx"]);
    assert!(!said.stderr.contains('\u{1b}'), "{:?}", said.stderr);
    assert_failed(&said, COULD_NOT_LOOK);
    let said = run(["snap", "\u{1b}[2J"]);
    assert!(!said.stderr.contains('\u{1b}'), "{:?}", said.stderr);
    assert_failed(&said, USAGE);
}

#[test]
fn a_place_that_cannot_be_written_is_an_error_and_leaves_stdout_empty() {
    let dir = tempfile::tempdir().unwrap();
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let inside_a_file = dir.path().join("file");
    fs::write(&inside_a_file, "x").unwrap();
    for place in [
        "/no/such/folder/out.json",
        "/proc/out.json",
        "",
        "/dev/full",
    ] {
        for args in [
            vec!["snap", &pid, "--json", "-o", place],
            vec!["snap", &pid, "-o", place],
            vec!["top", "--json", "-o", place],
            vec!["top", "--once", "-o", place],
        ] {
            let said = run(&args);
            assert!([USAGE, COULD_NOT_LOOK].contains(&said.code), "{args:?}");
            assert_failed(&said, said.code);
        }
    }
    let place = inside_a_file.join("out");
    let said = run(["snap", &pid, "-o", place.to_str().unwrap()]);
    assert_failed(&said, COULD_NOT_LOOK);
    assert_failed(
        &run(["snap", &pid, "-o", dir.path().to_str().unwrap()]),
        COULD_NOT_LOOK,
    );
    victim.finish();
}

#[test]
fn a_full_stdout_is_an_error_and_a_closed_one_is_not() {
    let victim = Victim::start("everything");
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = fdguard();
    command.args(["snap", &victim.pid().to_string(), "--json"]);
    let output = command.stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(COULD_NOT_LOOK));
    for args in [&["--json"][..], &["--fds"], &["-F"], &["--counts"]] {
        let mut command = fdguard();
        command.arg("snap").arg(victim.pid().to_string()).args(args);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
    }
    victim.finish();
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let mut victim = Victim::start("leaker");
    victim.tell("3000 file");
    for args in [&["--fds"][..], &["--json"], &["-F"]] {
        let mut command = fdguard();
        command.arg("snap").arg(victim.pid().to_string()).args(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 1];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}");
    }
    victim.finish();
}

#[test]
fn of_several_processes_the_missing_one_is_a_gap_and_not_a_success() {
    let victim = Victim::start("leaker");
    let (pid, gone) = (victim.pid().to_string(), free_pid().to_string());
    let said = run(["snap", &pid, &gone, "--json"]);
    assert_eq!(said.code, COULD_NOT_LOOK);
    let document = said.json();
    assert_eq!(document["processes"], 1);
    assert!(
        document["gaps"][0]["what"]
            .as_str()
            .unwrap()
            .contains(&gone)
    );
    let both = run(["snap", &gone, &(free_pid() + 1).to_string(), "--json"]);
    assert_failed(&both, COULD_NOT_LOOK);
    victim.finish();
}

#[test]
fn a_starved_fdguard_says_what_is_missing() {
    if !is_root() {
        return skip("needs root");
    }
    // Three streams and two more: not enough to look, enough to report it.
    let said = CommandOutput::of(
        std::process::Command::new("sh")
            .args(["-c", "ulimit -n 5; exec \"$0\" snap $$ --json"])
            .arg(env!("CARGO_BIN_EXE_fdguard"))
            .output()
            .unwrap(),
    );
    assert_failed(&said, COULD_NOT_LOOK);
    assert!(
        said.stderr.contains("Too many open files"),
        "{}",
        said.stderr
    );
}
