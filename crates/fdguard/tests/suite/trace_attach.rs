//! `fdguard trace PID`: programs that run already.

use std::process::Command;

use rustix::process::Signal;
use serde_json::json;
use testkit::{is_root, skip};

use super::attaching::{Attaching, Runner, is_left, runner, trace_dirs};
use super::run;
use super::tracing::line_of;

fn pid_of(runner: &Runner) -> String {
    runner.pid.to_string()
}

#[test]
fn a_leak_since_the_attach_has_its_line_and_the_program_does_not_notice() {
    let mut runner = Runner::start();
    let pid = pid_of(&runner);
    let attaching = Attaching::trace(&[&pid]);
    assert!(
        attaching
            .said
            .contains(&format!("attaching to {pid} (runner-O2)"))
    );
    assert!(attaching.said.contains(" ms\n"), "{}", attaching.said);
    for _ in 0..40 {
        assert!(runner.say("o").starts_with("open "));
        assert_eq!(runner.say("h"), "closed 0");
    }
    let outcome = attaching.interrupt();
    // A burst of milliseconds is not judged a leak; its line is known all the same.
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let found = &outcome.found;
    assert_eq!(found["coverage"]["backend"], "inject");
    assert_eq!(found["process"]["pid"], runner.pid);
    let site = outcome.site("/* KEEP */");
    assert_eq!((&site["live"], &site["opened"]), (&json!(40), &json!(80)));
    assert!(is_left(runner.pid));
    assert_eq!(trace_dirs(runner.pid), [] as [std::path::PathBuf; 0]);
    assert!(runner.say("o").starts_with("open "));
    runner.end();
}

#[test]
fn what_was_open_before_has_no_line_and_is_no_leak() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&pid_of(&runner)]);
    runner.say("r");
    let outcome = attaching.interrupt();
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let before = outcome.found["opened_before_attach"].as_array().unwrap();
    let is_null =
        |one: &&serde_json::Value| one["target"] == "/dev/null" && one["count"].as_u64() >= Some(5);
    let null = before.iter().find(is_null);
    let null = null.unwrap_or_else(|| panic!("{before:?}"));
    assert_eq!(null["class"], "chardev");
    assert!(null["age_at_least_seconds"].as_f64().unwrap() > 0.0);
    let since = &null["opened_since"][0];
    assert_eq!(since["culprit"]["line"], line_of("runner.c", "/* HOLD */"));
    assert_eq!(since["opened"], 1);
    let findings = outcome.found["findings"].to_string();
    assert!(!findings.contains("/dev/null"), "{findings}");
    runner.end();
}

#[test]
fn hazards_are_found_as_at_launch() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&pid_of(&runner)]);
    assert_eq!(runner.say("d"), "closed -1 Bad file descriptor");
    let outcome = attaching.interrupt();
    let rules = outcome.found["hazards"].to_string();
    assert!(rules.contains("double-close"), "{outcome:?}");
    runner.end();
}

#[test]
fn forked_children_are_followed_and_left_as_well() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&pid_of(&runner)]);
    let said = runner.say("f");
    let child: u32 = said.strip_prefix("child ").unwrap().parse().unwrap();
    let outcome = attaching.interrupt();
    let site = outcome.site("/* CHILD */");
    assert_eq!((&site["pid"], &site["live"]), (&json!(child), &json!(3)));
    assert!(is_left(child) && is_left(runner.pid), "{outcome:?}");
    runner.end();
}

#[test]
fn an_exec_ends_the_trace_and_is_reported() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&pid_of(&runner)]);
    runner.say("o");
    let ready = runner.say("e");
    assert!(ready.starts_with("READY "), "{ready}");
    let outcome = attaching.interrupt();
    let gaps = outcome.found["gaps"].to_string();
    assert!(gaps.contains("since it became exe"), "{gaps}");
    assert!(gaps.contains("fdguard trace PID"), "{gaps}");
    runner.end();
}

#[test]
fn the_end_of_the_program_ends_the_trace() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&pid_of(&runner)]);
    runner.say("o");
    runner.end();
    let outcome = attaching.end();
    assert_eq!(outcome.found["ended"], "process-ended", "{outcome:?}");
    assert_eq!(outcome.site("/* KEEP */")["opened"], 1);
}

#[test]
fn after_the_time_the_program_goes_on_and_can_be_attached_to_again() {
    let mut runner = Runner::start();
    let pid = pid_of(&runner);
    for _ in 0..3 {
        let attaching = Attaching::trace(&[&pid, "--for", "200ms"]);
        runner.say("o");
        let outcome = attaching.end();
        assert_eq!(outcome.found["ended"], "time-up", "{outcome:?}");
        assert!(is_left(runner.pid), "{outcome:?}");
    }
    runner.end();
}

#[test]
fn a_killed_tracer_does_not_keep_the_program_or_the_next_tracer() {
    let mut runner = Runner::start();
    let pid = pid_of(&runner);
    let attaching = Attaching::trace(&[&pid]);
    runner.say("o");
    attaching.signal(Signal::KILL);
    drop(attaching);
    for _ in 0..100 {
        runner.say("h");
    }
    let attaching = Attaching::trace(&[&pid]);
    runner.say("o");
    let outcome = attaching.interrupt();
    assert_eq!(outcome.site("/* KEEP */")["opened"], 1, "{outcome:?}");
    runner.end();
}

#[test]
fn one_that_refuses_does_not_stop_the_others() {
    let mut runner = Runner::start();
    let gone = "4194304";
    let attaching = Attaching::trace(&[gone, &pid_of(&runner)]);
    runner.say("h");
    let outcome = attaching.interrupt();
    assert_eq!(outcome.code, Some(3), "{outcome:?}");
    assert!(
        outcome.said.contains(&format!("cannot attach to {gone}: ")),
        "{outcome:?}"
    );
    let gaps = outcome.found["gaps"].to_string();
    assert!(gaps.contains(gone), "{gaps}");
    runner.end();
}

#[test]
fn a_static_program_is_refused_with_a_reason_and_a_way() {
    let flags = ["-O2", "-static"];
    let Some(program) = testkit::c_variant("runner", "static", &flags) else {
        return skip("no static C library");
    };
    let runner = Runner::of(&mut Command::new(program));
    let said = run(["trace", "--source", "attach", &pid_of(&runner)]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    let error = said
        .stderr
        .lines()
        .find(|line| line.contains("cannot attach to"));
    assert!(
        error.is_some_and(|line| line.contains("static")),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("hint: "), "{}", said.stderr);
    runner.end();
}

#[test]
fn all_processes_of_a_name_are_attached_to() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("fdg-named");
    std::fs::copy(runner(), &program).unwrap();
    let mut runners = [(); 2].map(|()| Runner::of(&mut Command::new(&program)));
    let mut attaching = Attaching::trace(&["--name", "fdg-named"]);
    attaching.wait_for("attached to ");
    for one in &mut runners {
        one.say("o");
    }
    let outcome = attaching.interrupt();
    let sites = outcome.found["sites"].as_array().unwrap();
    for one in &runners {
        let is_of = |site: &&serde_json::Value| site["pid"] == one.pid;
        assert!(sites.iter().any(|site| is_of(&site)), "{outcome:?}");
    }
    runners.into_iter().for_each(Runner::end);
}

#[test]
fn a_program_in_a_container_is_entered_and_named() {
    if !is_root() {
        return skip("needs root for namespaces");
    }
    let mut command = Command::new("unshare");
    let script = "mount -t proc proc /proc && exec \"$0\"";
    command.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        script,
    ]);
    command.arg(runner());
    let mut outer = Runner::of(&mut command);
    let children = format!("/proc/{0}/task/{0}/children", outer.pid);
    let inner = std::fs::read_to_string(children).unwrap();
    let inner = inner.trim().to_owned();
    let attaching = Attaching::trace(&[&inner]);
    for _ in 0..3 {
        outer.say("o");
    }
    let outcome = attaching.interrupt();
    let site = outcome.site("/* KEEP */");
    assert_eq!(site["opened"], 3, "{outcome:?}");
    assert_eq!(site["pid"].to_string(), inner);
    outer.end();
}

#[test]
fn doctor_attaches_for_its_time_and_names_the_line() {
    let mut runner = Runner::start();
    let pid = pid_of(&runner);
    runner.say("o");
    let mut command = super::fdguard();
    command.args(["doctor", &pid, "--trace", "1s", "--json"]);
    let mut child = command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("attached to ") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut errors, &mut line).unwrap() > 0);
    }
    for _ in 0..5 {
        runner.say("o");
    }
    std::io::Read::read_to_string(&mut errors, &mut line).unwrap();
    let output = child.wait_with_output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let wanted = line_of("runner.c", "/* KEEP */");
    let sites = found["sites"].as_array().unwrap();
    let site = sites.iter().find(|site| site["culprit"]["line"] == wanted);
    let site = site.unwrap_or_else(|| panic!("{found}"));
    assert_eq!(site["opened"], 5, "{site}");
    runner.end();
}
