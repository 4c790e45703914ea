//! `fdguard trace PID` with its options, each as at launch.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use testkit::{TestCgroup, have, is_root, skip};

use super::attaching::{Attaching, Runner, is_left, runner};
use super::profile;
use super::tracing::line_of;

#[test]
fn a_leak_is_logged_when_it_is_seen_and_gives_exit_code_1() {
    let mut runner = Runner::start();
    let pid = runner.pid;
    let words = ["trace", &pid.to_string(), "--follow", "--every", "100ms"];
    let mut attaching = Attaching::start(&words);
    attaching.wait_for("attached to ");
    let is_seen = AtomicBool::new(false);
    let place = format!("line=runner.c:{}", line_of("runner.c", "/* KEEP */"));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_seen.load(Ordering::Relaxed) {
                runner.say("o");
                thread::sleep(Duration::from_millis(50));
            }
        });
        // In either order.
        for text in ["verdict=leaking", &place] {
            if !attaching.said.contains(text) {
                attaching.wait_for(text);
            }
        }
        is_seen.store(true, Ordering::Relaxed);
    });
    let outcome = attaching.interrupt();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(outcome.found["verdict"], "leaking");
    let origin = &outcome.found["findings"][0]["origin"];
    let line = line_of("runner.c", "/* KEEP */");
    assert_eq!(origin["culprit"]["line"], line, "{outcome:?}");
    assert!(is_left(pid));
    runner.end();
}

#[test]
fn stacks_and_profiles_have_what_was_opened_since() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (folded, pprof) = (path("a.folded"), path("a.pb.gz"));
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let attaching = Attaching::trace(&[&pid, "--folded", &folded, "--pprof", &pprof]);
    for _ in 0..3 {
        runner.say("o");
    }
    runner.say("h");
    attaching.interrupt();
    let line = line_of("runner.c", "/* KEEP */");
    let folded = std::fs::read_to_string(folded).unwrap();
    let is_kept = |one: &str| one.ends_with(" 3") && one.contains(&format!("runner.c:{line})"));
    assert!(folded.lines().any(is_kept), "{folded}");
    let profile = profile::read(&std::fs::read(pprof).unwrap());
    let place = format!("runner.c:{line}");
    let samples = profile.samples.iter();
    let of_line = samples.filter(|one| one.stack[0].ends_with(&place));
    let sums = of_line.fold([0; 3], |sums, one| {
        [0, 1, 2].map(|at| sums[at] + one.values[at])
    });
    assert_eq!(sums, [3, 4, 1], "{:?}", profile.samples);
    runner.end();
}

#[test]
fn protection_keeps_a_closed_number_closed_and_is_given_back() {
    let mut runner = Runner::start();
    let attaching = Attaching::trace(&[&runner.pid.to_string(), "--protect"]);
    let first = runner.say("o");
    assert_eq!(runner.say("c"), "closed 0");
    // The number is kept for a while, so the next open gets another one.
    assert_ne!(runner.say("o"), first);
    assert_eq!(runner.say("d"), "closed -1 Bad file descriptor");
    let outcome = attaching.interrupt();
    let hazards = outcome.found["hazards"].as_array().unwrap();
    let mut closes = hazards
        .iter()
        .filter(|one| one["rule"] == "double-close" && one["prevented"] == true);
    assert!(closes.next().is_some(), "{outcome:?}");
    assert!(is_left(runner.pid));
    // Without protection the lowest free number is given out again.
    assert_eq!(runner.say("o"), first);
    runner.end();
}

#[test]
fn the_processes_of_a_unit_are_attached_to() {
    let unit = format!("fdguard-test-{}.service", std::process::id());
    let group = TestCgroup::create(&unit).filter(|_| is_root());
    let Some(group) = group else {
        return skip("needs root and a cgroup that can be created");
    };
    let mut runners = [Runner::start(), Runner::start()];
    for one in &runners {
        group.add(one.pid);
    }
    let unit = unit.trim_end_matches(".service");
    let mut attaching = Attaching::trace(&["--unit", unit]);
    attaching.wait_for("attached to ");
    for one in &mut runners {
        one.say("o");
    }
    let outcome = attaching.interrupt();
    let sites = outcome.found["sites"].as_array().unwrap();
    for one in &runners {
        assert!(
            sites.iter().any(|site| site["pid"] == one.pid),
            "{outcome:?}"
        );
    }
    runners.into_iter().for_each(Runner::end);
}

/// A root directory with nothing but the program and its libraries.
fn small_root(dir: &Path) {
    for name in ["proc", "tmp", "dev", "sys", "etc", "run"] {
        std::fs::create_dir(dir.join(name)).unwrap();
    }
    let listed = Command::new("ldd").arg(runner()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let libraries = listed
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/etc/passwd"]) {
        let place = dir.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(file, place).unwrap();
    }
    std::fs::copy(runner(), dir.join("runner")).unwrap();
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A container without network, filters of system calls, and limits that a test machine may lack.
fn podman_run(root: &Path, name: &str) -> Command {
    let mut command = Command::new("podman");
    command
        .args(["--runtime", "runc", "--cgroup-manager", "cgroupfs"])
        .args(["run", "--rm", "-i", "--network", "none", "--name", name])
        .args([
            "--ulimit",
            "nofile=1024:1024",
            "--ulimit",
            "nproc=1024:1024",
        ])
        .args(["--security-opt", "seccomp=unconfined", "--rootfs"])
        .arg(root)
        .arg("/runner");
    command
}

#[test]
fn the_processes_of_a_podman_container_are_attached_to() {
    if !have("podman") || !is_root() {
        return skip("needs podman and root");
    }
    let dir = tempfile::tempdir().unwrap();
    small_root(dir.path());
    let name = format!("fdguard-trace-test-{}", std::process::id());
    let tried = podman_run(dir.path(), &name)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if tried.status.code() != Some(7) {
        let reason = String::from_utf8_lossy(&tried.stderr).into_owned();
        return skip(&format!("podman cannot start containers here: {reason}"));
    }
    let mut runner = Runner::of(&mut podman_run(dir.path(), &name));
    let inspected = Command::new("podman")
        .args(["inspect", "--format", "{{.Id}} {{.State.Pid}}", &name])
        .output()
        .unwrap();
    let inspected = String::from_utf8(inspected.stdout).unwrap();
    let (id, pid) = inspected.trim().split_once(' ').unwrap();
    let attaching = Attaching::trace(&["--container", id]);
    for _ in 0..3 {
        runner.say("o");
    }
    let outcome = attaching.interrupt();
    let site = outcome.site("/* KEEP */");
    assert_eq!(site["opened"], 3, "{outcome:?}");
    assert_eq!(site["pid"].to_string(), pid);
    runner.end();
}

#[test]
fn functions_that_another_tool_replaced_are_a_gap() {
    let mut runner = Runner::start();
    assert_eq!(runner.say("g"), "replaced 1");
    let attaching = Attaching::trace(&[&runner.pid.to_string()]);
    runner.say("o");
    assert!(runner.say("f").starts_with("child "));
    let outcome = attaching.interrupt();
    let gaps = outcome.found["gaps"].to_string();
    assert!(
        gaps.contains("through 1 reference to C library functions"),
        "{gaps}"
    );
    assert_eq!(outcome.site("/* KEEP */")["opened"], 1, "{outcome:?}");
    runner.end();
}

#[test]
fn a_recording_that_ends_before_the_trace_is_a_gap() {
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let attaching = Attaching::trace(&[&pid]);
    runner.say("o");
    assert_eq!(runner.say("q"), "left 0");
    runner.say("o");
    let outcome = attaching.interrupt();
    let gaps = outcome.found["gaps"].to_string();
    assert!(
        gaps.contains("the recording ended before fdguard detached"),
        "{gaps}"
    );
    assert_eq!(outcome.site("/* KEEP */")["opened"], 1, "{outcome:?}");
    // One that fdguard ended itself is whole.
    let attaching = Attaching::trace(&[&pid]);
    runner.say("o");
    let gaps = attaching.interrupt().found["gaps"].to_string();
    assert!(!gaps.contains("the recording ended"), "{gaps}");
    runner.end();
}

/// The command is interrupted while it attaches, and leaves the program at once.
fn interrupted(words: &[&str]) {
    let mut runner = Runner::start();
    let pid = runner.pid.to_string();
    let words: Vec<&str> = words
        .iter()
        .map(|word| if *word == "PID" { &*pid } else { *word })
        .collect();
    let attaching = Attaching::start_blocked(&words);
    let outcome = attaching.interrupt();
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.said.contains("attached to "), "{outcome:?}");
    assert!(outcome.said.contains("stopped by signal 2"), "{outcome:?}");
    assert!(is_left(runner.pid));
    assert!(super::attaching::trace_dirs(runner.pid).is_empty());
    assert!(runner.say("o").starts_with("open "));
    runner.end();
}

#[test]
fn a_doctor_that_is_interrupted_while_it_attaches_leaves_the_program() {
    interrupted(&["doctor", "PID", "--trace", "60s"]);
}

#[test]
fn a_check_that_is_interrupted_while_it_attaches_leaves_the_program() {
    interrupted(&[
        "check",
        "--pid",
        "PID",
        "--exercise",
        "true",
        "--cycles",
        "1000",
    ]);
}
