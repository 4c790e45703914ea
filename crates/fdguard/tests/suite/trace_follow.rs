//! `fdguard trace --follow`: a line for each new event, when it happens.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{ChildStderr, Stdio};

use super::tracing::{Tracing, line_of};
use super::{CommandOutput, fdguard};

fn drip() -> String {
    let program = testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap();
    program.to_str().unwrap().to_owned()
}

/// Reads lines until one has all of the words; each line begins with a kind and a time.
fn wait_for(lines: &mut BufReader<ChildStderr>, words: &[&str]) -> String {
    loop {
        let mut line = String::new();
        assert!(
            lines.read_line(&mut line).unwrap() > 0,
            "no line with {words:?}"
        );
        let mut parts = line.split(' ');
        assert!(parts.next().unwrap().starts_with("fd_"), "{line}");
        assert!(parts.next().unwrap().starts_with("time=20"), "{line}");
        let has = |word: &&str| line.trim_end().split(' ').any(|part| part == *word);
        if words.iter().all(has) {
            return line;
        }
    }
}

#[test]
fn r18_a_site_that_begins_to_grow_is_told_at_once_with_its_line() {
    let mut child = fdguard()
        .args(["trace", "--follow", "--every", "100ms", "--"])
        .args([&*drip(), "1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    wait_for(&mut lines, &["fd_process", "comm=drip-O2", "event=started"]);
    wait_for(&mut lines, &["fd_verdict", "verdict=leaking"]);
    let place = format!("line=drip.c:{}", line_of("drip.c", "/* LEAK */"));
    let site = wait_for(
        &mut lines,
        &["fd_site", &place, "function=arm", "class=eventfd"],
    );
    let rate = site.split(" per_second=").nth(1).unwrap();
    let rate: f64 = rate.split(' ').next().unwrap().parse().unwrap();
    assert!((5.0..40.0).contains(&rate), "{site}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest.matches("fd_site").count(), 0, "once is enough: {rest}");
    assert!(rest.contains("still open in drip-O2"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn r18_children_that_start_and_end_are_told_and_the_file_has_it_while_it_happens() {
    let script = "echo up; read line; sleep 1000 & child=$!; read line; kill $child; wait; read line; exit 0";
    let mut tracing = Tracing::start(&["--follow", "--every", "20ms"], &["bash", "-c", script]);
    assert_eq!(tracing.line(), "up");
    tracing.say("child");
    tracing.wait_in_file("comm=sleep event=started", "comm=bash event=started");
    tracing.say("kill it");
    tracing.wait_in_file("event=ended", "event=ended");
    tracing.say("end");
    let (said, report) = tracing.end();
    assert_eq!((said.code, &*said.stderr), (0, ""), "{report}");
    let last = report.lines().rev().find(|line| line.starts_with("fd_"));
    assert!(last.unwrap().contains("event=ended"), "{report}");
    assert!(
        report.contains("stable  bash") || report.contains("unknown  bash"),
        "{report}"
    );
}

#[test]
fn with_json_the_lines_stay_out_of_the_document() {
    let mut command = fdguard();
    command.args(["trace", "--follow", "--json", "--", "sh", "-c", "read x"]);
    let said = CommandOutput::of(command.output().unwrap());
    assert_eq!(said.json()["schema"], "fdguard.diagnosis/1");
    for line in said.stderr.lines() {
        assert!(line.starts_with("fd_"), "{line}");
    }
}
