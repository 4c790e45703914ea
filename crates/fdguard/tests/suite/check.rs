//! `fdguard check` on programs that run to their end.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{CommandOutput, fdguard};

fn victim() -> PathBuf {
    let flags = ["-O1", "-g", "-fno-inline", "-pthread"];
    testkit::c_variant("left", "O1", &flags).expect("a victim that compiles")
}

/// The line that opens the leftovers.
fn line() -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/c/left.c");
    let text = std::fs::read_to_string(path).unwrap();
    let found = text
        .lines()
        .position(|line| line.contains("/* LEFT load */"));
    found.unwrap() + 1
}

fn check(arguments: &[&str], program: impl AsRef<Path>, words: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.arg("check").args(arguments).arg("--");
    CommandOutput::of(command.arg(program.as_ref()).args(words).output().unwrap())
}

/// The document, and the exit code.
fn document(arguments: &[&str], program: impl AsRef<Path>, words: &[&str]) -> (i32, Value) {
    let arguments = [&["--json"], arguments].concat();
    let said = check(&arguments, program, words);
    (said.code, said.json())
}

fn judged(document: &Value) -> Vec<(&str, u64)> {
    let leftovers = document["check"]["leftovers"].as_array().unwrap();
    leftovers
        .iter()
        .map(|one| {
            (
                one["judged"].as_str().unwrap(),
                one["count"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[test]
fn r34_a_file_that_is_left_open_fails_with_its_line_and_its_name() {
    let (code, found) = document(&[], victim(), &["one"]);
    assert_eq!(code, 1, "{found}");
    assert_eq!(found["schema"], "fdguard.diagnosis/1");
    assert_eq!(found["check"]["passed"], false);
    let finding = &found["findings"][0];
    assert_eq!(finding["rule"], "leftover-descriptor");
    assert_eq!(finding["target"], "/etc/passwd");
    assert_eq!(finding["class"], "regular");
    let culprit = &finding["origin"]["culprit"];
    assert_eq!(culprit["line"], line());
    assert_eq!(culprit["function"], "load");
    assert_eq!(finding["origin"]["stack"][1]["function"], "one");
}

#[test]
fn r34_a_program_that_closes_everything_passes() {
    let (code, found) = document(&[], victim(), &["proper"]);
    assert_eq!(code, 0, "{found}");
    assert_eq!(found["check"]["passed"], true);
    assert_eq!(judged(&found), []);
    let said = check(&[], victim(), &["proper"]);
    assert!(said.stderr.starts_with("passed  left"), "{}", said.stderr);
    assert_eq!(said.text(), "", "its output is its own");
}

/// The file of the exit report got the number and was reported in its place.
#[test]
fn r34_what_was_closed_past_the_library_is_not_left() {
    let (code, found) = document(&[], victim(), &["closed-unseen"]);
    assert_eq!((code, judged(&found)), (0, vec![]), "{found}");
}

#[test]
fn r35_one_forgotten_among_many_fails_and_a_cache_does_not() {
    let (code, found) = document(&[], victim(), &["stray"]);
    assert_eq!((code, judged(&found)), (1, vec![("strayed", 1)]), "{found}");
    let (code, found) = document(&[], victim(), &["cache"]);
    assert_eq!((code, judged(&found)), (0, vec![("rolling", 5)]), "{found}");
}

#[test]
fn r34_children_are_judged_when_they_ended_by_themselves() {
    let (code, found) = document(&[], victim(), &["child"]);
    assert_eq!((code, judged(&found)), (1, vec![("left", 1)]), "{found}");
    assert_ne!(found["findings"][0]["pid"], found["process"]["pid"]);
    let (code, found) = document(&[], victim(), &["killed-child"]);
    assert_eq!((code, judged(&found)), (0, vec![("cut-off", 1)]), "{found}");
}

#[test]
fn what_is_allowed_passes_and_is_told() {
    let place = format!("left.c:{}", line());
    for allowance in [place.as_str(), "regular", "/etc/*"] {
        let said = check(&["--allow", allowance], victim(), &["one"]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let told = format!("allowed by --allow {allowance}");
        assert!(said.stderr.contains(&told), "{}", said.stderr);
    }
    let said = check(&["--allow", "pipe"], victim(), &["one"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let said = check(&["--allow", "pip"], victim(), &["one"]);
    assert_eq!(said.code, 2, "{}", said.stderr);
}

#[test]
fn r16_the_ledger_clears_a_leftover_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("fdguard.toml");
    let entry = "[[cleared]]\nclass = \"regular\"\ntarget = \"/etc/*\"\nreason = \"read at exit\"\ndate = 2026-01-31\n";
    std::fs::write(&file, entry).unwrap();
    let said = check(&["--config", file.to_str().unwrap()], victim(), &["one"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stderr.contains("read at exit"), "{}", said.stderr);
}

#[test]
fn the_programs_own_failure_is_passed_on_and_findings_have_their_code() {
    assert_eq!(check(&[], victim(), &["one", "7"]).code, 7);
    assert_eq!(
        check(&["--error-exitcode", "42"], victim(), &["one"]).code,
        42
    );
    assert_eq!(check(&[], "sh", &["-c", "kill -9 $$"]).code, 137);
    let absent = check(&[], "fdguard-no-such-program", &[]);
    assert_eq!(absent.code, 127);
    assert!(absent.stderr.contains("not found"), "{}", absent.stderr);
    assert_eq!(check(&[], "/etc/passwd", &[]).code, 126);
}

#[test]
fn r38_an_orphan_in_a_session_of_its_own_is_named_and_ended() {
    let (code, found) = document(&["--grace", "100ms"], victim(), &["orphan"]);
    assert_eq!(code, 1, "{found}");
    let left = &found["check"]["processes"][0];
    assert_eq!(left["cmdline"], serde_json::json!(["sleep", "1000"]));
    assert_eq!(
        (&left["fate"], &left["ending"]),
        (&"running".into(), &"asked".into())
    );
    let finding = &found["findings"][0];
    assert_eq!(finding["rule"], "leftover-process");
    assert!(!is_alive(&left["pid"]));
    let (code, _) = document(
        &["--grace", "100ms", "--allow-process", "sle*"],
        victim(),
        &["orphan"],
    );
    assert_eq!(code, 0);
}

#[test]
fn r38_who_does_not_listen_is_killed_and_who_may_stay_stays() {
    let (code, found) = document(&["--grace", "100ms"], victim(), &["stubborn"]);
    assert_eq!(
        (code, &found["check"]["processes"][0]["ending"]),
        (1, &"killed".into())
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("check.json");
    let mut command = fdguard();
    let arguments = ["check", "--grace", "0s", "--keep-leftovers", "--json", "-o"];
    command.args(arguments).arg(&file);
    // A process that stays behind would hold a pipe of this test open.
    let null = std::process::Stdio::null;
    command.arg("--").arg(victim()).arg("orphan");
    let code = command
        .stdout(null())
        .stderr(null())
        .status()
        .unwrap()
        .code();
    let found: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let left = &found["check"]["processes"][0];
    assert_eq!((code, &left["ending"]), (Some(1), &"kept".into()));
    assert!(is_alive(&left["pid"]));
    let pid = i32::try_from(left["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn is_alive(pid: &Value) -> bool {
    let pid = u32::try_from(pid.as_u64().unwrap()).unwrap();
    fdguard_proc::process::stat(pid, |stat| !stat.is_zombie()).unwrap_or(false)
}

#[test]
fn r38_a_child_that_was_never_waited_for_is_told() {
    let (code, found) = document(&[], victim(), &["zombie"]);
    assert_eq!(code, 1, "{found}");
    assert_eq!(found["check"]["processes"][0]["fate"], "zombie");
}

#[test]
fn a_static_program_that_ended_at_once_is_not_called_clean() {
    let Some(program) = testkit::c_variant("left", "static", &["-O1", "-static"]) else {
        return testkit::skip("no static C library");
    };
    let said = check(&[], program, &["one"]);
    if said.stderr.contains("tracing by the kernel") {
        assert_eq!(said.code, 1, "{}", said.stderr);
        assert!(
            said.stderr.contains("leftover-descriptor"),
            "{}",
            said.stderr
        );
        return;
    }
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(said.stderr.contains("cannot be traced"), "{}", said.stderr);
}

#[test]
fn a_program_without_symbols_is_judged_and_named() {
    let program = testkit::c_variant("left", "stripped", &["-O1", "-s"]).unwrap();
    let said = check(&[], program, &["one"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(
        said.stderr.contains("(no debug information)"),
        "{}",
        said.stderr
    );
}

#[test]
fn several_at_once_do_not_see_each_other() {
    let start = |words: &[&str]| {
        let mut command = fdguard();
        command
            .args(["check", "--json", "--grace", "500ms", "--"])
            .arg(victim())
            .args(words);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    };
    let dirty = [start(&["orphan"]), start(&["one"])];
    let clean = [start(&["proper"]), start(&["proper"])];
    for child in dirty {
        let said = CommandOutput::of(child.wait_with_output().unwrap());
        assert_eq!(said.code, 1, "{}", said.stderr);
        let findings = said.json()["findings"].as_array().unwrap().len();
        assert_eq!(findings, 1, "{}", said.text());
    }
    for child in clean {
        let said = CommandOutput::of(child.wait_with_output().unwrap());
        assert_eq!(said.code, 0, "{}", said.stderr);
    }
}

#[test]
fn a_clean_program_passes_fifty_times_in_a_row_on_a_busy_machine() {
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "while :; do :; done"]).spawn().unwrap()
        })
        .collect();
    // Some runs take longer to judge.
    let kind = |run: usize| {
        if run.is_multiple_of(10) {
            "cache"
        } else {
            "proper"
        }
    };
    let failed: Vec<String> = (0..50)
        .map(|run| check(&[], victim(), &[kind(run)]))
        .filter(|said| said.code != 0)
        .map(|said| said.stderr)
        .collect();
    for mut child in busy {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(failed.is_empty(), "{} of 50: {failed:?}", failed.len());
}
