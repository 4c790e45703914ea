//! The kernel tier reports exactly what the full tier reports.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use fdguard_core::Tier;
use fdguard_probe::{Depth, Options, Probe};
use serde_json::Value;
use testkit::{NOBODY, Namespace, Victim, VictimLaunch, have, is_root, skip};

use super::{assert_says_the_same, document};

fn options(depth: Depth) -> Options {
    Options {
        depth,
        ..Options::default()
    }
}

/// The document of one process in this tier.
fn look(pid: u32, depth: Depth) -> Value {
    let probe = Probe::new().unwrap();
    document(&probe.snapshot(pid, options(depth)).unwrap())
}

/// Whether the kernel allows a walk; prints a message if it does not.
fn can_walk() -> bool {
    let child = Holder::of(Stdio::null());
    let tier = look(child.pid(), Depth::Kernel)["tier"].clone();
    if tier != "kernel" {
        skip("the kernel lets us load no iterator");
    }
    tier == "kernel"
}

/// A program that waits, with one of the test's descriptors as its input.
struct Holder(Child);

impl Holder {
    fn of(stdin: Stdio) -> Self {
        let mut command = Command::new("tail");
        command.args(["-f", "/dev/null"]).stdin(stdin);
        let holder = Self(command.stdout(Stdio::null()).spawn().unwrap());
        // The kernel closes descriptors before it sets the arguments.
        let arguments = format!("/proc/{}/cmdline", holder.pid());
        while std::fs::read(&arguments).unwrap().is_empty() {
            std::thread::yield_now();
        }
        holder
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Removes what belongs to the moment and not to the process: the time, the host's usage, and a
/// timer's remaining time.
fn without_the_moment(mut document: Value) -> Value {
    let map = document.as_object_mut().unwrap();
    for key in ["taken_at", "tier", "host", "walls"] {
        assert!(map.remove(key).is_some(), "{key}");
    }
    for fd in document["fds"].as_array_mut().unwrap() {
        if fd["class"] == "timerfd" {
            fd["detail"].as_object_mut().unwrap().remove("remaining");
        }
    }
    document
}

fn without_the_shared(mut document: Value) -> Value {
    for fd in document["fds"].as_array_mut().unwrap() {
        let fd = fd.as_object_mut().unwrap();
        fd.remove("shared_with");
        if fd["class"] == "pipe" {
            fd.remove("detail");
        }
    }
    document
}

/// Both tiers agree with each other, and with the victim's own report where that is comparable.
fn assert_same(launch: VictimLaunch) {
    if !can_walk() {
        return;
    }
    let victim = launch.start();
    for tries_left in (0..5).rev() {
        let by_kernel = look(victim.pid(), Depth::Kernel);
        let in_full = look(victim.pid(), Depth::Full);
        assert_eq!(by_kernel["tier"], "kernel");
        assert_eq!(in_full["tier"], "full");
        assert_says_the_same(&by_kernel, victim.holdings());
        let (by_kernel, in_full) = (without_the_moment(by_kernel), without_the_moment(in_full));
        // Its standard error leads to the test runner, and is held for a moment by each process
        // that the tests start.
        if tries_left > 0 && by_kernel != in_full {
            continue;
        }
        assert_eq!(by_kernel, in_full);
        break;
    }
    victim.finish();
}

#[test]
fn r2_everything_is_the_same_in_both_tiers() {
    assert_same(Victim::of("everything"));
}

#[test]
fn r2_everything_of_a_c_program_is_the_same_in_both_tiers() {
    assert_same(Victim::of_c("everything"));
}

#[test]
fn r2_everything_of_another_user_is_the_same_in_both_tiers() {
    if !is_root() {
        return skip("needs root");
    }
    assert_same(Victim::of("everything").as_user(NOBODY));
}

#[test]
fn r6_everything_in_another_mount_namespace_is_the_same_in_both_tiers() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    assert_same(Victim::of("everything").in_new(Namespace::Mount));
}

#[test]
fn r6_a_process_of_another_pid_namespace_has_our_number() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    if !can_walk() {
        return;
    }
    let victim = Victim::of("everything").in_new(Namespace::Pid).start();
    let by_kernel = look(victim.pid(), Depth::Kernel);
    assert_eq!(by_kernel["tier"], "kernel");
    assert_eq!(by_kernel["process"]["ns_pid"], 1);
    let in_full = look(victim.pid(), Depth::Full);
    assert_eq!(without_the_moment(by_kernel), without_the_moment(in_full));
    victim.finish();
}

#[test]
fn several_processes_are_the_same_in_both_tiers() {
    if !can_walk() {
        return;
    }
    let victims: Vec<_> = (0..9).map(|_| Victim::start("everything")).collect();
    let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();
    let probe = Probe::new().unwrap();
    let all = |depth| {
        let snapshots = probe.snapshots(&pids, options(depth));
        let documents = snapshots.into_iter().map(|one| document(&one.unwrap()));
        documents.collect::<Vec<_>>()
    };
    let (by_kernel, in_full) = (all(Depth::Kernel), all(Depth::Full));
    assert_eq!(by_kernel.len(), 9);
    for (by_kernel, in_full) in by_kernel.into_iter().zip(in_full) {
        assert_eq!(by_kernel["tier"], "kernel");
        assert_eq!(without_the_moment(by_kernel), without_the_moment(in_full));
    }
}

/// Files whose names or file systems require `/proc`, or are easily mistaken.
#[test]
fn names_that_are_long_or_look_deleted_are_the_same_in_both_tiers() {
    if !can_walk() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(200)).join("e".repeat(200));
    std::fs::create_dir_all(&deep).unwrap();
    let names = [
        deep.join("long"),
        dir.path().join("living (deleted)"),
        dir.path().join("plain"),
        "/proc/version".into(),
    ];
    for name in &names {
        if name.starts_with(dir.path()) {
            std::fs::write(name, "text").unwrap();
        }
        let holder = Holder::of(File::open(name).unwrap().into());
        let by_kernel = look(holder.pid(), Depth::Kernel);
        assert_eq!(by_kernel["tier"], "kernel");
        assert_eq!(by_kernel["fds"][0]["target"], name.to_str().unwrap());
        let in_full = look(holder.pid(), Depth::Full);
        // Descriptors inherited from the test's parent are shared with processes that come and go.
        let alone = |document| without_the_shared(without_the_moment(document));
        assert_eq!(alone(by_kernel), alone(in_full));
    }
    let name = dir.path().join("gone");
    std::fs::write(&name, "text").unwrap();
    let holder = Holder::of(File::open(&name).unwrap().into());
    std::fs::remove_file(&name).unwrap();
    let by_kernel = look(holder.pid(), Depth::Kernel);
    assert_eq!(by_kernel["fds"][0]["class"], "deleted");
    assert_eq!(by_kernel["fds"][0]["target"], name.to_str().unwrap());
}

/// One thread shares the table, one has its own copy, in which it opened more: `/proc/PID` shows
/// the first thread's.
#[test]
fn threads_add_nothing_to_the_table() {
    if !can_walk() || !have("python3") {
        return skip("needs python3");
    }
    let program = "
import ctypes, os, threading
def alone():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    for _ in range(5): os.open('/etc/passwd', os.O_RDONLY)
    print('ready', flush=True); threading.Event().wait()
threading.Thread(target=threading.Event().wait, daemon=True).start()
threading.Thread(target=alone).start()
";
    let mut command = Command::new("python3");
    command.args(["-c", program]).stdout(Stdio::piped());
    // What the test itself inherited may be shared with processes that come and go.
    testkit::start_clean(&mut command);
    let mut child = Holder(command.stdin(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    let mut said = std::io::BufReader::new(child.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    let by_kernel = look(child.pid(), Depth::Kernel);
    assert_eq!(by_kernel["tier"], "kernel");
    let fds = by_kernel["fds"].as_array().unwrap();
    assert!(fds.iter().all(|fd| fd["target"] != "/etc/passwd"));
    let in_full = look(child.pid(), Depth::Full);
    assert_eq!(without_the_moment(by_kernel), without_the_moment(in_full));
}

#[test]
fn of_ourselves_the_walk_shows_nothing() {
    let probe = Probe::new().unwrap();
    let own = std::process::id();
    let snapshot = probe.snapshot(own, options(Depth::Kernel)).unwrap();
    assert_eq!(snapshot.tier, Tier::Full);
    let snapshots = probe.snapshots(&[own], options(Depth::Kernel));
    assert_eq!(snapshots[0].as_ref().unwrap().tier, Tier::Full);
}
