//! `fdguard trace PID` as people use it: interrupted, in a pipe, twice, without root, on a full
//! disk.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::{NOBODY, is_root, skip};

use super::attaching::{Attaching, Runner, is_left, runner, trace_dirs};
use super::terminal::Live;
use super::tracing::{Tracing, line_of};
use super::{AsNobody, CommandOutput, fdguard, run};

/// Checks that the program is free, and lets it end as it would without fdguard.
fn end(mut runner: Runner) {
    assert!(is_left(runner.pid));
    assert_eq!(trace_dirs(runner.pid), [] as [std::path::PathBuf; 0]);
    assert!(runner.say("o").starts_with("open "));
    runner.end();
}

#[test]
fn an_interrupt_during_the_attach_leaves_the_program_free() {
    for _ in 0..4 {
        let runner = Runner::start();
        let mut attaching = Attaching::start(&["trace", &runner.pid.to_string()]);
        attaching.wait_for("attaching to ");
        let outcome = attaching.interrupt();
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        end(runner);
    }
}

#[test]
fn an_idle_program_shows_what_it_held_before() {
    let runner = Runner::start();
    let outcome = Attaching::trace(&[&runner.pid.to_string(), "--for", "100ms"]).end();
    let before = outcome.found["opened_before_attach"].to_string();
    assert!(before.contains("/dev/null"), "{outcome:?}");
    end(runner);
}

#[test]
fn a_reader_that_goes_away_ends_nothing_but_the_report() {
    let mut runner = Runner::start();
    let mut command = fdguard();
    command.args(["trace", &runner.pid.to_string(), "--for", "300ms"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    runner.say("o");
    let said = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(!errors.contains("panic"), "{errors}");
    assert!(said.status.code().is_some(), "{}", said.status);
    end(runner);
}

#[test]
fn a_second_fdguard_reads_the_first_ones_trace() {
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let first = Attaching::trace(&[&pid]);
    runner.say("o");
    let line = format!("runner.c:{}", line_of("runner.c", "/* KEEP */"));
    // The first one reads its events a moment later.
    let said = loop {
        let said = run(["trace", &pid, "--for", "50ms"]);
        if said.text().contains(&line) {
            break said;
        }
    };
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(!said.stderr.contains("attaching"), "{}", said.stderr);
    let refused = run(["trace", &pid, "--follow", "--for", "50ms"]);
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    assert!(
        refused
            .stderr
            .contains("another fdguard traces it already\nhint: read that trace with"),
        "{}",
        refused.stderr
    );
    assert_eq!(first.interrupt().site("/* KEEP */")["opened"], 1);
    end(runner);
}

#[test]
fn a_program_that_was_launched_under_trace_is_read() {
    let program = testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap();
    let tracing = Tracing::start(&[], &[program.to_str().unwrap(), "1000"]);
    let children = format!("/proc/{0}/task/{0}/children", tracing.pid());
    let line = format!("drip.c:{}", line_of("drip.c", "/* LEAK */"));
    loop {
        let pid = std::fs::read_to_string(&children).unwrap();
        if let Some(pid) = pid.split_whitespace().next() {
            let said = run(["trace", pid, "--for", "50ms"]);
            assert!(!said.stderr.contains("attached to"), "{}", said.stderr);
            if said.text().contains(&line) {
                break;
            }
        }
    }
    tracing.signal(Signal::TERM);
    tracing.end();
}

#[test]
fn without_root_ones_own_programs_are_attached_to_and_others_are_refused() {
    if !is_root() {
        return skip("needs root");
    }
    let nobody = AsNobody::new();
    let other = Runner::start();
    let said = nobody.run(&["trace", &other.pid.to_string(), "--for", "50ms"]);
    assert_eq!(said.code, 3, "{}", said.stderr);
    assert!(said.stderr.contains("belongs to another user (uid 0)"));
    assert!(!said.stderr.contains("attaching"), "{}", said.stderr);
    assert!(
        said.stderr.ends_with("hint: run fdguard with sudo\n"),
        "{}",
        said.stderr
    );
    end(other);
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let program = place.path().join("runner");
    let copied = Command::new("cp").arg(runner()).arg(&program).status();
    assert!(copied.unwrap().success());
    let opened = Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(place.path())
        .status();
    assert!(opened.unwrap().success());
    let mut command = Command::new(&program);
    let mut own = Runner::of(command.uid(NOBODY).gid(NOBODY));
    let pid = own.pid.to_string();
    let mut command = nobody.command(&["trace", &pid, "--for", "500ms", "--json"]);
    let tracing = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    own.say("r");
    let said = CommandOutput::of(tracing.wait_with_output().unwrap());
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stderr.contains("attached to"), "{}", said.stderr);
    assert!(said.text().contains("/dev/null"), "{}", said.text());
    end(own);
}

#[test]
fn a_full_shared_memory_is_not_in_the_way() {
    if !is_root() {
        return skip("needs root for namespaces");
    }
    // The records go to the next directory of the program.
    let script = "mount -t tmpfs -o size=16k none /dev/shm
        head -c 100000 /dev/zero > /dev/shm/full 2> /dev/null
        exec \"$0\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(runner());
    let mut runner = Runner::of(&mut command);
    let attaching = Attaching::trace(&[&runner.pid.to_string()]);
    runner.say("o");
    let outcome = attaching.interrupt();
    assert_eq!(outcome.site("/* KEEP */")["opened"], 1, "{outcome:?}");
    end(runner);
}

#[test]
fn a_worker_that_is_killed_does_not_end_the_trace() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&runner.pid.to_string()]);
    let said = runner.say("f");
    let child: i32 = said.strip_prefix("child ").unwrap().parse().unwrap();
    rustix::process::kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    runner.say("o");
    let outcome = attaching.interrupt();
    assert_eq!(outcome.site("/* CHILD */")["opened"], 3, "{outcome:?}");
    assert_eq!(outcome.site("/* KEEP */")["opened"], 1, "{outcome:?}");
    end(runner);
}

#[test]
fn the_live_view_shows_the_line_and_leaves_the_program() {
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let mut live = Live::of(&["trace", &pid, "--live", "--every", "50ms"], 100, 24);
    live.wait_for("attached to");
    runner.say("o");
    let line = format!("runner.c:{} keep", line_of("runner.c", "/* KEEP */"));
    live.wait_for(&line);
    live.press(b"q");
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0), "{shown}");
    end(runner);
}

#[test]
fn the_page_has_the_line_and_what_was_open_before() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let attaching = Attaching::trace(&[&pid, "--html", page.to_str().unwrap()]);
    runner.say("o");
    attaching.interrupt();
    let text = std::fs::read_to_string(page).unwrap();
    let line = format!("runner.c:{}", line_of("runner.c", "/* KEEP */"));
    assert!(text.contains(&line), "{text}");
    assert!(text.contains("opened before the attach"), "{text}");
    end(runner);
}
