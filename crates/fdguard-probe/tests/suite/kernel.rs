//! The kernel tier reports exactly what the full tier reports.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use fdguard_core::Tier;
use fdguard_probe::{Depth, Options, Probe, ProcessWatcher};
use serde_json::Value;
use testkit::{NOBODY, Namespace, Victim, VictimLaunch, have, is_root, skip};

use super::nobody::{Nobody, answer, asked, pid_of};
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

/// Removes what belongs to the moment and not to the process: the time, the host's usage, a timer's
/// remaining time, and how many directories others have in `/tmp`.
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
    without_links(document)
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

/// Opens descriptors of many kinds, duplicates the last one up to the given number, and waits.
const LARGE: &str = "
import ctypes, os, resource, signal, socket, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
libc = ctypes.CDLL(None)
keep = [socket.create_server(('127.0.0.1', 0)), socket.create_server(('::1', 0), family=socket.AF_INET6)]
held = [os.open('/etc/passwd', os.O_RDONLY)]
for turn in range(most // 40):
    for server in keep[:2]:
        client = socket.create_connection(server.getsockname()[:2])
        keep += [client, server.accept()[0]]
    keep[-2].send(b'x' * turn)
    if turn % 3 == 0: keep[-1].shutdown(socket.SHUT_WR)
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind(('127.0.0.1', 0))
    two = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); two.connect(one.getsockname())
    two.send(b'held')
    keep += [one, two, *socket.socketpair(), *socket.socketpair(type=socket.SOCK_DGRAM)]
    name = socket.socket(socket.AF_UNIX); name.bind('\\0large-%d-%d' % (os.getpid(), turn)); name.listen()
    peer = socket.socket(socket.AF_UNIX); peer.connect(name.getsockname())
    keep += [name, peer, socket.socket(), socket.socket(type=socket.SOCK_DGRAM), socket.socket(socket.AF_UNIX)]
    keep += [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)]
    held += [*os.pipe(), os.open('/dev/null', os.O_RDWR), os.open('/tmp', os.O_RDONLY)]
    held += [libc.eventfd(turn, 1), libc.eventfd(turn, 0o2000000), libc.epoll_create1(0)]
    held += [libc.timerfd_create(turn % 2, 0), os.memfd_create('large'), os.pidfd_open(os.getppid())]
for master in range(20): held += os.openpty()
number = max(held)
while number + 1 < most: number = os.dup(held[-1])
print(number, flush=True)
signal.pause()
";

/// A process of Python with so many numbers in use, started by the words of `inside`; `None`, with
/// a message, if there is no Python.
fn large(most: u32, inside: &[&str]) -> Option<Holder> {
    if !have("python3") {
        skip("needs python3");
        return None;
    }
    let most_text = most.to_string();
    let words = [inside, &["python3", "-c", LARGE, &most_text]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    testkit::start_clean(&mut command);
    let streams = command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = Holder(streams.spawn().unwrap());
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert!(line.trim().parse::<u32>().unwrap() + 1 >= most, "{line}");
    Some(child)
}

fn hard_limit() -> u32 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = limit.maximum.unwrap_or(u64::MAX);
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// Other programs make and remove directories in a directory that is open here.
fn without_links(mut document: Value) -> Value {
    for fd in document["fds"].as_array_mut().into_iter().flatten() {
        if fd["class"] == "directory" {
            fd["detail"]["links"] = Value::Null;
        }
    }
    document
}

#[test]
fn a_large_table_is_the_same_in_both_tiers() {
    // More than the numbers of two parts, and more than 20,000 where that is allowed.
    let most = hard_limit().saturating_sub(64).min(24_000);
    if !can_walk() {
        return;
    }
    let Some(holder) = large(most, &[]) else {
        return;
    };
    let probe = Probe::new().unwrap();
    let auto = probe.snapshot(holder.pid(), Options::default()).unwrap();
    assert_eq!(auto.tier, Tier::Kernel, "{most} descriptors");
    let by_kernel = without_the_moment(document(&auto));
    let in_full = without_the_moment(look(holder.pid(), Depth::Full));
    let (ours, theirs) = (&by_kernel["fds"], &in_full["fds"]);
    assert_eq!(
        ours.as_array().unwrap().len(),
        theirs.as_array().unwrap().len()
    );
    let pairs = ours
        .as_array()
        .unwrap()
        .iter()
        .zip(theirs.as_array().unwrap());
    for (ours, theirs) in pairs {
        assert_eq!(ours.to_string(), theirs.to_string());
    }
    assert_eq!(by_kernel.to_string(), in_full.to_string());
}

#[test]
fn a_watch_lists_many_new_descriptors_by_the_kernel() {
    if !can_walk() {
        return;
    }
    let Some(holder) = large(3000, &[]) else {
        return;
    };
    let probe = Probe::new().unwrap();
    let no_peers = Options {
        peers: false,
        ..options(Depth::Full)
    };
    let snapshot = probe.snapshot(holder.pid(), no_peers).unwrap();
    let mut watcher = ProcessWatcher::new(&probe, holder.pid()).unwrap();
    let tick = watcher.list().unwrap();
    let expected = snapshot.fds.unwrap();
    assert_eq!(tick.opened.len(), expected.len());
    for (new, expected) in tick.opened.iter().zip(&expected) {
        assert_eq!(
            (new.fd, &new.class, &new.target, new.id),
            (expected.fd, &expected.class, &expected.target, expected.id)
        );
    }
}

#[test]
fn sockets_of_another_network_namespace_are_the_same_in_both_tiers() {
    if !is_root() {
        return skip("needs root");
    }
    assert_same(Victim::of("outsider"));
}

#[test]
fn a_process_of_another_network_namespace_is_the_same_in_both_tiers() {
    if !is_root() || !have("unshare") || !have("ip") {
        return skip("needs root, unshare and ip");
    }
    if !can_walk() {
        return;
    }
    let inside = [
        "unshare",
        "--net",
        "sh",
        "-c",
        "ip link set lo up && exec \"$@\"",
        "sh",
    ];
    let Some(holder) = large(600, &inside) else {
        return;
    };
    let by_kernel = look(holder.pid(), Depth::Auto);
    assert_eq!(by_kernel["tier"], "kernel");
    let in_full = look(holder.pid(), Depth::Full);
    assert_eq!(without_the_moment(by_kernel), without_the_moment(in_full));
}

/// Registers so many files with an epoll instance each time, and closes some of them again.
const EPOLLS: &str = "
import ctypes, os, select, signal
keep, libc = [], ctypes.CDLL(None)
for most in (0, 1, 2, 3, 7, 19, 20, 21, 64):
    epoll = select.epoll()
    keep.append(epoll)
    for turn in range(most):
        first = libc.eventfd(turn, 0) if turn % 2 else os.pipe()[0]
        keep.append(os.dup(first))
        epoll.register(first, select.EPOLLIN)
        if turn % 5 == 4: os.close(first)
outer = select.epoll(); outer.register(keep[0].fileno(), select.EPOLLIN)
print('ready', flush=True)
signal.pause()
";

/// A program of Python that has printed a line.
fn python(program: &str) -> Option<Holder> {
    if !have("python3") {
        skip("needs python3");
        return None;
    }
    let mut command = Command::new("python3");
    command.args(["-c", program]).stdout(Stdio::piped());
    testkit::start_clean(&mut command);
    let mut child = Holder(command.stdin(Stdio::null()).spawn().unwrap());
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(child)
}

#[test]
fn what_epolls_have_registered_is_the_same_in_both_tiers() {
    if !can_walk() {
        return;
    }
    let Some(holder) = python(EPOLLS) else {
        return;
    };
    let by_kernel = look(holder.pid(), Depth::Kernel);
    assert_eq!(by_kernel["tier"], "kernel");
    let epolls = by_kernel["fds"].as_array().unwrap().iter();
    let epolls = epolls.filter(|fd| fd["class"] == "eventpoll");
    let watching: Vec<_> = epolls.map(|fd| fd["detail"]["watching"].clone()).collect();
    assert_eq!(
        Value::from(watching),
        serde_json::json!([0, 1, 2, 3, 7, 19, 20, 21, 64, 1])
    );
    let in_full = look(holder.pid(), Depth::Full);
    assert_eq!(without_the_moment(by_kernel), without_the_moment(in_full));
}

/// Processes of all sorts, by one walk over the whole host.
#[test]
fn all_sorts_of_processes_are_the_same_in_both_tiers() {
    if !is_root() || !have("unshare") {
        return skip("needs root and unshare");
    }
    if !can_walk() {
        return;
    }
    let mut launches = vec![
        Victim::of("everything").as_user(NOBODY),
        Victim::of("everything").in_new(Namespace::Pid),
        Victim::of("everything").in_new(Namespace::Mount),
        Victim::of("outsider"),
        Victim::of("inheritor"),
        Victim::of("parent").arg("3").arg("2"),
    ];
    launches.extend((0..4).map(|_| Victim::of_c("everything")));
    let victims: Vec<_> = launches.into_iter().map(VictimLaunch::start).collect();
    let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();
    let probe = Probe::new().unwrap();
    let all = |depth| {
        let snapshots = probe.snapshots(&pids, options(depth)).into_iter();
        let documents = snapshots.map(|one| without_links(document(&one.unwrap())));
        documents.collect::<Vec<_>>()
    };
    for tries_left in (0..5).rev() {
        let (by_kernel, in_full) = (all(Depth::Kernel), all(Depth::Full));
        assert!(by_kernel.iter().all(|one| one["tier"] == "kernel"));
        let strip =
            |all: Vec<Value>| -> Vec<_> { all.into_iter().map(without_the_moment).collect() };
        let (by_kernel, in_full) = (strip(by_kernel), strip(in_full));
        // What the victims inherited is held for a moment by each process that the tests start.
        if tries_left > 0 && by_kernel != in_full {
            continue;
        }
        for (by_kernel, in_full) in by_kernel.iter().zip(&in_full) {
            assert_eq!(by_kernel, in_full);
        }
        break;
    }
    victims.into_iter().for_each(Victim::finish);
}

/// Starts programs that have 200 numbers from beginning to end, one after the other.
const COMING_AND_GOING: &str = "
import os
null = os.open('/dev/null', os.O_RDONLY)
for number in range(100, 300): os.dup2(null, number, inheritable=True)
print('ready', flush=True)
while True: os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
";

#[test]
fn a_process_that_ends_during_the_walk_is_whole_or_missing() {
    if !can_walk() {
        return;
    }
    let Some(holder) = python(COMING_AND_GOING) else {
        return;
    };
    let probe = Probe::new().unwrap();
    let no_peers = Options {
        peers: false,
        ..options(Depth::Kernel)
    };
    let mut seen = 0;
    // Until some of them were met.
    for _ in 0..100 {
        let mut pids = probe.pids().unwrap();
        // Those that start meanwhile: the last number that the kernel gave is in this file.
        let load = std::fs::read_to_string("/proc/loadavg").unwrap();
        let newest: u32 = load.split_whitespace().last().unwrap().parse().unwrap();
        pids.extend(newest + 1..newest + 64);
        for snapshot in probe.snapshots(&pids, no_peers).into_iter().flatten() {
            // Others on this host start that program, too.
            let process = &snapshot.process;
            if process.comm.as_bytes() != b"true" || process.ppid != Some(holder.pid()) {
                continue;
            }
            let fds = snapshot.fds.unwrap_or_default();
            let kept = fds.iter().filter(|entry| (100..300).contains(&entry.fd));
            assert_eq!(kept.count(), 200, "{:?}", snapshot.tier);
            seen += u32::from(snapshot.tier == Tier::Kernel);
        }
        if seen >= 5 {
            return;
        }
    }
    skip("no program was met while it ran");
}

/// Without the capabilities, the full tier answers, whatever was asked for.
#[test]
fn nobody_falls_back_to_the_full_tier() {
    if let Some(pid) = asked() {
        return answer(&look(pid_of(&pid), Depth::Kernel));
    }
    if !is_root() {
        return skip("needs root");
    }
    let victim = Victim::of("everything").as_user(NOBODY).start();
    let test = "nobody_falls_back_to_the_full_tier";
    let document = Nobody::run_in("kernel", test, &victim.pid().into()).hear();
    assert_eq!(document["tier"], "full");
    assert_says_the_same(&document, victim.holdings());
    victim.finish();
}
