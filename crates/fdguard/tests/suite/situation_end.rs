//! Situations 1 and 2: what a program does while it ends does not change its verdict.

use std::ffi::OsString;
use std::process::Command;

use testkit::{have, skip, software};

use super::situation::{Answer, Session, line_of, python, source, words};

fn drip(end: &str, period: &str, seconds: &str) -> Option<Vec<OsString>> {
    let python = python()?;
    Some(words([
        &python,
        &source("drip.py"),
        &period,
        &seconds,
        &end,
    ]))
}

fn objects(period: &str, seconds: &str) -> Option<Vec<OsString>> {
    let python = python()?;
    Some(words([&python, &source("objects.py"), &period, &seconds]))
}

/// The maximum open at once: what the victim held, and the few that every program has.
#[track_caller]
fn assert_peak(answer: &Answer, held: u64) {
    let peak = answer.document["peak"].as_u64();
    let is_right = peak.is_some_and(|peak| (held..=held + 12).contains(&peak));
    assert!(is_right, "held {held}: {}", answer.brief());
    assert!(answer.document["peak_at"].is_string(), "{}", answer.brief());
}

/// Everything it held was closed in the sweep at the end, and the report says so.
#[track_caller]
fn assert_released(answer: &Answer, held: u64) {
    let released = &answer.document["released_at_end"];
    assert_eq!(released["count"], held, "{}", answer.brief());
    assert!(released["at"].is_string(), "{}", answer.brief());
}

#[test]
fn situation_1_files_left_open_fail_a_check_with_their_line() {
    let Some(words) = drip("leave", "0.05", "6") else {
        return;
    };
    let answer = Answer::to("check", &words);
    answer.assert_leaking("drip.py", line_of("drip.py", "LEAK"));
}

#[test]
fn situation_1_files_left_open_are_leaking_in_a_trace() {
    let Some(words) = drip("leave", "0.05", "6") else {
        return;
    };
    let answer = Answer::to("trace", &words);
    answer.assert_leaking("drip.py", line_of("drip.py", "LEAK"));
    assert_peak(&answer, answer.number("HELD"));
}

/// Many runs at once: the last look must not coincide with the interpreter's clean-up.
#[test]
fn situation_1_files_that_the_interpreter_closes_while_it_ends_fail_every_time() {
    let Some(words) = objects("0.05", "6") else {
        return;
    };
    for verb in ["check", "trace"] {
        let sessions: Vec<Session> = (0..6).map(|_| Session::start(verb, &words)).collect();
        for session in sessions {
            let answer = session.end();
            answer.assert_leaking("objects.py", line_of("objects.py", "LEAK"));
        }
    }
}

#[test]
fn situation_patient_1_a_file_every_250_ms_for_15_s() {
    let Some(words) = objects("0.25", "15") else {
        return;
    };
    let verbs = ["check", "check", "trace", "trace"];
    let sessions: Vec<Session> = verbs
        .iter()
        .map(|verb| Session::start(verb, &words))
        .collect();
    for session in sessions {
        let answer = session.end();
        answer.assert_leaking("objects.py", line_of("objects.py", "LEAK"));
    }
}

#[test]
fn situation_2_a_tidy_shutdown_in_python_does_not_undo_a_leak() {
    let Some(words) = drip("close", "0.05", "6") else {
        return;
    };
    for verb in ["trace", "check"] {
        let answer = Answer::to(verb, &words);
        answer.assert_leaking("drip.py", line_of("drip.py", "LEAK"));
        assert_peak(&answer, answer.number("HELD"));
        assert_released(&answer, answer.number("HELD"));
    }
}

#[test]
fn situation_patient_2_a_tidy_shutdown_after_15_s_does_not_undo_a_leak() {
    let Some(words) = drip("close", "0.25", "15") else {
        return;
    };
    let sessions = ["trace", "check"].map(|verb| Session::start(verb, &words));
    for session in sessions {
        let answer = session.end();
        answer.assert_leaking("drip.py", line_of("drip.py", "LEAK"));
        assert_peak(&answer, answer.number("HELD"));
        assert_released(&answer, answer.number("HELD"));
    }
}

#[test]
fn situation_2_a_tidy_shutdown_in_node_does_not_undo_a_leak() {
    if !have("node") {
        return skip("needs node");
    }
    let words = words([&"node", &source("drip.js"), &"50", &"6000"]);
    for verb in ["trace", "check"] {
        let answer = Answer::to(verb, &words);
        answer.assert_leaking("drip.js", line_of("drip.js", "LEAK"));
        let peak = answer.document["peak"].as_u64();
        let held = answer.number("HELD");
        // Node itself has about twenty.
        let is_right = peak.is_some_and(|peak| (held..=held + 40).contains(&peak));
        assert!(is_right, "{}", answer.brief());
        assert_released(&answer, held);
    }
}

/// The kernel runs under the tracer, its client beside it.
#[test]
fn situation_2_a_jupyter_kernel_that_is_shut_down_was_leaking() {
    let Some(python) = software("venv/bin/python") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let connection = dir.path().join("kernel.json");
    let words = words([&python, &"-m", &"ipykernel_launcher", &"-f", &connection]);
    let prepare = |command: &mut Command| {
        command.env("IPYTHONDIR", dir.path());
    };
    let session = Session::of("trace", &words, prepare);
    let mut client = Command::new(&python);
    client.arg(source("kernel_client.py")).arg(&connection);
    let client = client.args(["4", "8"]).env("IPYTHONDIR", dir.path());
    let output = client.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let held = text.trim().strip_prefix("HELD ").unwrap().parse().unwrap();
    let answer = session.end();
    // The cell has no file: its line and its function identify it.
    let findings = answer.findings();
    let is_cell = |place: &serde_json::Value| place["line"] == 4 && place["function"] == "work";
    let named = findings
        .iter()
        .any(|one| is_cell(&one["origin"]["culprit"]));
    assert!(named, "{}", answer.brief());
    assert_eq!(answer.verdict(), "leaking", "{}", answer.brief());
    assert_eq!(answer.code, 1, "{}", answer.brief());
    let peak = answer.document["peak"].as_u64();
    // The kernel's own sockets and pipes are some dozens.
    let is_right = peak.is_some_and(|peak| (held..=held + 100).contains(&peak));
    assert!(is_right, "held {held}: {}", answer.brief());
}

#[test]
fn situation_2_terminals_of_pexpect_are_leaking_when_the_program_ends_by_itself() {
    let Some(python) = software("venv/bin/python") else {
        return;
    };
    let words = words([&python, &source("sessions.py"), &"0.2", &"6"]);
    for verb in ["trace", "check"] {
        let answer = Answer::to(verb, &words);
        answer.assert_leaking("sessions.py", line_of("sessions.py", "LEAK"));
        assert_peak(&answer, answer.number("HELD"));
    }
}
