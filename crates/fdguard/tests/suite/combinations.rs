//! Features together: killed workers, full memory for records, namespaces, another clock, a stopped
//! target, protection under budgets.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{have, is_root, skip};

use super::running::{Running, service};
use super::tracing::line_of;
use super::{CommandOutput, fdguard};

fn traced() -> PathBuf {
    let flags = ["-O2", "-g", "-fomit-frame-pointer", "-pthread"];
    testkit::c_variant("traced", "O2", &flags).expect("a victim that compiles")
}

fn dripping() -> PathBuf {
    testkit::c_variant("drip", "O2", &["-O2", "-g"]).expect("a victim that compiles")
}

/// The output and the report of `fdguard trace` with these words, by way of a command that becomes
/// fdguard.
fn trace(outer: &[&str], words: &[&str]) -> (CommandOutput, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("report");
    let mut all: Vec<&str> = outer.to_vec();
    all.extend([env!("CARGO_BIN_EXE_fdguard"), "trace", "--json", "-o"]);
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).arg(&file).arg("--").args(words);
    let output = CommandOutput::of(command.stdin(Stdio::null()).output().unwrap());
    let written = std::fs::read(&file);
    let written = written.unwrap_or_else(|error| panic!("{error}: {}", output.stderr));
    (output, serde_json::from_slice(&written).unwrap())
}

/// The site of a line; the report must have it.
fn site(found: &Value, line: usize) -> &Value {
    let mut sites = found["sites"].as_array().unwrap().iter();
    let site = sites.find(|site| site["culprit"]["line"] == line);
    site.unwrap_or_else(|| panic!("no line {line} in {found:#}"))
}

#[test]
fn workers_that_are_killed_keep_their_lines() {
    if !have("python3") {
        return skip("needs python3");
    }
    let script = "\
import os, signal, sys
workers = []
for number in range(4):
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = [open('/dev/null') for _ in range(10)]
        os.write(tell, b'x')
        signal.pause()
    os.read(told, 1)
    os.close(told), os.close(tell)
    workers.append(pid)
for pid in workers:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print('done', *workers)
";
    let (output, found) = trace(&["env"], &["python3", "-c", script]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let workers = output.text().trim().strip_prefix("done ").unwrap();
    for worker in workers.split(' ') {
        let worker: u32 = worker.parse().unwrap();
        let mut sites = found["sites"].as_array().unwrap().iter();
        let kept = sites.find(|site| site["pid"] == worker && site["live"] == 10);
        let kept = kept.unwrap_or_else(|| panic!("worker {worker}: {found:#}"));
        assert_eq!(kept["culprit"]["line"], 7);
    }
    // The call in which each of them was killed may be half recorded.
    assert!(
        found["coverage"]["lost_events"].as_u64() <= Some(4),
        "{found:#}"
    );
}

/// The directory of the records is full: the program runs as it would, and what is missing is said.
#[test]
fn a_full_directory_for_records_costs_the_program_nothing() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    let program = traced();
    for size in ["4k", "64k", "1m"] {
        let script = format!("mount -t tmpfs -o size={size} none /dev/shm && exec \"$0\" \"$@\"");
        let outer = ["unshare", "--mount", "sh", "-c", &script];
        let (output, found) = trace(&outer, &[program.to_str().unwrap(), "leak"]);
        assert_eq!(
            (output.code, output.text()),
            (0, "last 1\n"),
            "{size}: {}",
            output.stderr
        );
        let line = line_of("traced.c", "/* LEAK helper */");
        let sites = found["sites"].as_array().unwrap();
        let is_whole = sites
            .iter()
            .any(|site| site["culprit"]["line"] == line && site["live"] == 12);
        let gaps = found["gaps"].as_array().unwrap();
        assert!(is_whole || !gaps.is_empty(), "{size}: {found:#}");
    }
}

#[test]
fn a_program_in_namespaces_of_its_own_is_traced() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    let program = traced();
    let line = line_of("traced.c", "/* LEAK helper */");
    for spaces in [
        &["--net"][..],
        &["--mount"],
        &["--ipc", "--uts"],
        &["--pid", "--fork", "--mount-proc"],
        &[
            "--pid",
            "--fork",
            "--net",
            "--mount-proc",
            "--ipc",
            "--uts",
            "--cgroup",
        ],
    ] {
        let mut words = vec!["unshare"];
        words.extend(spaces);
        words.extend([program.to_str().unwrap(), "leak"]);
        let (output, found) = trace(&["env"], &words);
        assert_eq!(
            (output.code, output.text()),
            (0, "last 1\n"),
            "{spaces:?}: {}",
            output.stderr
        );
        let site = site(&found, line);
        assert_eq!(site["live"], 12, "{spaces:?}: {found:#}");
    }
}

/// The clocks of a time namespace are not those of the tracer: ages are not made up.
#[test]
fn a_program_with_clocks_of_its_own_has_no_ages_and_a_gap() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    let program = dripping();
    let words = [
        "unshare",
        "--time",
        "--monotonic=864000",
        "--fork",
        program.to_str().unwrap(),
        "1",
    ];
    let (output, found) = trace(&["env"], &words);
    if output.stderr.contains("unshare failed") {
        return skip("needs time namespaces");
    }
    assert_eq!(output.text(), "done\n", "{}", output.stderr);
    let line = line_of("drip.c", "/* LEAK */");
    assert_eq!(site(&found, line)["live"], 20, "{found:#}");
    let gaps = found["gaps"].to_string();
    assert!(gaps.contains("clocks of its own"), "{found:#}");
}

/// A stopped program does nothing: that is neither a leak nor the end of one.
#[test]
fn a_target_that_is_stopped_meanwhile_is_watched_on() {
    let mut target = Command::new(dripping())
        .arg("600")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&target);
    let mut watch = fdguard()
        .args([
            "watch",
            "--json",
            "--samples",
            "--for",
            "12s",
            "--every",
            "200ms",
        ])
        .arg(target.id().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for _ in 0..20 {
        assert!(lines.next().unwrap().unwrap().contains("sample"));
    }
    kill_process(pid, Signal::STOP).unwrap();
    for _ in 0..10 {
        assert!(lines.next().unwrap().unwrap().contains("sample"));
    }
    kill_process(pid, Signal::CONT).unwrap();
    let last = lines.map(Result::unwrap).last().unwrap();
    let code = watch.wait().unwrap().code();
    target.kill().unwrap();
    target.wait().unwrap();
    let found: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(found["verdict"], "leaking", "{found:#}");
    assert_eq!(code, Some(1));
}

/// A protected service leaks into its budget: it is restarted, and the next process is protected.
#[test]
fn a_protected_service_is_restarted_by_its_budget_and_protected_again() {
    let script = "ulimit -Sn 256; exec \"$0\" run --protect --raise-limit off --budget fds=40%:60% \
        --warmup 0s --evidence off -- \"$1\" leak 1";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_fdguard"), &service()]);
    let mut running = Running::of(command);
    let first = running.event("start", &[]).number("pid");
    assert!(is_protected(first));
    running.event("restart", &["reason=fd_budget", "budget=fds"]);
    let second = running.event("start", &["restarts=1"]).number("pid");
    running.event("proven", &[]);
    assert!(second != first && is_protected(second));
    assert_eq!(running.stop().0, 0);
}

/// Whether the library is in a process; waits until its program has been executed.
fn is_protected(pid: u32) -> bool {
    let maps = Path::new("/proc").join(pid.to_string()).join("maps");
    loop {
        let maps = std::fs::read_to_string(&maps).unwrap();
        if maps.contains("service-O1") && maps.contains("libc.so") {
            return maps.contains("libfdguard_preload.so");
        }
        std::thread::yield_now();
    }
}
