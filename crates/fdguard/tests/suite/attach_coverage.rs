//! What an attached library sees, with `strace` as the judge: it watches the same process during
//! the same load.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::{have, skip};

use super::attaching::{AttachOutcome, Attaching};
use super::orders::{self, Ordered, Postgres};

/// A running `strace` of one process. Drop kills it.
struct Judge {
    child: Child,
    /// It has waited for `strace` to say so.
    _errors: BufReader<std::process::ChildStderr>,
}

impl Judge {
    fn watch(pid: u32, output: &Path) -> Self {
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-e",
            "trace=%desc,%network,%process",
            "-e",
            "signal=none",
            "-o",
        ]);
        command.arg(output).arg("-p").arg(pid.to_string());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.contains("attached"), "{line}");
        Self {
            child,
            _errors: errors,
        }
    }

    fn end(mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::INT);
        self.child.wait().unwrap();
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A finished call.
struct StraceCall<'a> {
    thread: &'a str,
    name: &'a str,
    arguments: String,
    result: &'a str,
}

/// The calls in the output of `strace -f`, in the order of their ends.
fn calls(output: &str) -> Vec<StraceCall<'_>> {
    let mut begun: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in output.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        let resumed = call
            .strip_prefix("<... ")
            .and_then(|rest| rest.split_once(" resumed>"));
        let (name, rest) = resumed.unwrap_or_else(|| call.split_once('(').unwrap_or((call, "")));
        if rest.ends_with("<unfinished ...>") {
            begun.insert((thread, name), rest);
        } else if let Some((rest, result)) = rest.rsplit_once(" = ") {
            let first = resumed.and_then(|_| begun.remove(&(thread, name)));
            calls.push(StraceCall {
                thread,
                name,
                arguments: format!("{}{rest}", first.unwrap_or_default()),
                result: result.split(' ').next().unwrap_or_default(),
            });
        }
    }
    calls
}

/// How many descriptors each call gave a process. Threads count; children and their children do
/// not. Nor do files that the loader opens inside of itself, and the library's own look at its
/// tracer.
fn given(output: &str) -> BTreeMap<String, u64> {
    given_in(&calls(output))
}

/// The same for the only thread of one process.
fn given_to(pid: u32, output: &str) -> BTreeMap<String, u64> {
    let mut calls = calls(output);
    calls.retain(|call| call.thread == pid.to_string());
    given_in(&calls)
}

fn given_in(calls: &[StraceCall<'_>]) -> BTreeMap<String, u64> {
    // A child may run before the call that made it ends.
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for call in calls {
        let makes = matches!(call.name, "clone" | "clone3" | "fork" | "vfork");
        let is_thread = call.arguments.contains("CLONE_THREAD") && !others.contains(call.thread);
        if makes && !is_thread {
            others.insert(call.result);
        }
    }
    let mut given = BTreeMap::new();
    for call in calls.iter().filter(|call| !others.contains(call.thread)) {
        let is_done = call.result.parse::<i64>().is_ok_and(|result| result >= 0);
        let is_hidden = [".so\"", ".so.", "/ld.so.cache", "/fdguard-trace-"]
            .iter()
            .any(|part| call.arguments.contains(part));
        let count = count(call.name, &call.arguments);
        if is_done && !is_hidden && count > 0 {
            *given.entry(call.name.to_owned()).or_default() += count;
        }
    }
    given
}

/// How many descriptors a successful call gives.
fn count(name: &str, arguments: &str) -> u64 {
    const ONE: [&str; 18] = [
        "open",
        "openat",
        "openat2",
        "creat",
        "socket",
        "accept",
        "accept4",
        "dup",
        "dup2",
        "dup3",
        "epoll_create",
        "epoll_create1",
        "eventfd2",
        "inotify_init1",
        "timerfd_create",
        "memfd_create",
        "pidfd_open",
        "signalfd4",
    ];
    match name {
        "pipe" | "pipe2" | "socketpair" => 2,
        "fcntl" => u64::from(arguments.contains("F_DUPFD")),
        _ => u64::from(ONE.contains(&name)),
    }
}

/// The most that a program opens by itself in the moments without strace.
const BY_ITSELF: u64 = 4;

/// Whether the numbers that are open at the end are those since the attach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbers {
    New,
    /// The program puts other files at numbers that were open before.
    Reused,
}

/// Attaches, lets `strace` watch, too, and compares after some rounds.
fn compare(ordered: Option<Ordered>, numbers: Numbers) {
    // It has said what is missing.
    let Some(mut ordered) = ordered else { return };
    if !have("strace") {
        return skip("needs strace");
    }
    // The program has loaded what it needs.
    ordered.work();
    let pid = ordered.pid();
    let before = open_numbers(pid);
    let attaching = Attaching::trace(&[&pid.to_string()]);
    let output = ordered.dir.path().join("strace");
    let judge = Judge::watch(pid, &output);
    for _ in 0..3 {
        ordered.work();
    }
    judge.end();
    let since = open_numbers(pid).difference(&before).count() as u64;
    let outcome = attaching.interrupt();
    ordered.work();
    let text = std::fs::read_to_string(&output).unwrap();
    let given = given(&text);
    let sites = outcome.found["sites"].as_array().unwrap();
    let of_process = sites.iter().filter(|site| site["pid"] == pid);
    let sum = |key: &str| {
        of_process
            .clone()
            .filter_map(|site| site[key].as_u64())
            .sum::<u64>()
    };
    let (opened, live) = (sum("opened"), sum("live"));
    // strace comes later and leaves earlier: what the program does by itself in between, now and
    // then, only fdguard sees.
    let judged = given.values().sum::<u64>();
    let is_all = (judged..=judged + BY_ITSELF).contains(&opened);
    assert!(is_all, "{opened} of {given:?} {outcome:?}");
    if numbers == Numbers::New {
        assert_eq!(live, since, "{outcome:?}");
    }
    assert!(opened >= 100, "{given:?}");
    assert_eq!(outcome.found["coverage"]["lost_events"], 0);
}

fn open_numbers(pid: u32) -> BTreeSet<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

#[test]
fn r18_all_of_cpython_is_seen() {
    compare(orders::python(), Numbers::New);
}

#[test]
fn r18_all_of_node_is_seen() {
    compare(orders::node(), Numbers::New);
}

#[test]
fn r18_all_of_bash_is_seen() {
    compare(orders::bash(), Numbers::Reused);
}

#[test]
fn r18_all_of_java_is_seen() {
    compare(orders::java(), Numbers::New);
}

#[test]
fn r18_all_of_cpp_is_seen() {
    compare(orders::cpp(), Numbers::New);
}

#[test]
fn r18_all_of_rust_is_seen() {
    compare(orders::rust(), Numbers::New);
}

/// Compares one process of a server, which is not its first.
fn compare_process(outcome: &AttachOutcome, pid: u32, strace: &Path) {
    let text = std::fs::read_to_string(strace).unwrap();
    let given = given_to(pid, &text);
    let sites = outcome.found["sites"].as_array().unwrap();
    let of_process = sites.iter().filter(|site| site["pid"] == pid);
    let opened = of_process.filter_map(|site| site["opened"].as_u64());
    let opened = opened.sum::<u64>();
    let judged = given.values().sum::<u64>();
    let is_all = (judged..=judged + BY_ITSELF).contains(&opened);
    assert!(is_all, "{opened} of {given:?} {outcome:?}");
    assert!(opened >= 100, "{given:?}");
}

#[test]
fn r18_all_of_a_postgres_connection_from_before_the_attach_is_seen() {
    let Some(postgres) = Postgres::start().filter(|_| have("strace")) else {
        return skip("needs strace and PostgreSQL");
    };
    let mut session = postgres.connect();
    session.work();
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("strace");
    let attaching = Attaching::trace(&[&session.pid.to_string()]);
    let judge = Judge::watch(session.pid, &output);
    for _ in 0..3 {
        session.work();
    }
    judge.end();
    let outcome = attaching.interrupt();
    session.work();
    compare_process(&outcome, session.pid, &output);
}

#[test]
fn r18_all_of_a_postgres_connection_since_the_attach_is_seen() {
    let Some(postgres) = Postgres::start().filter(|_| have("strace")) else {
        return skip("needs strace and PostgreSQL");
    };
    drop(postgres.connect());
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("strace");
    let attaching = Attaching::trace(&[&postgres.pid().to_string()]);
    let judge = Judge::watch(postgres.pid(), &output);
    let mut session = postgres.connect();
    for _ in 0..3 {
        session.work();
    }
    judge.end();
    let outcome = attaching.interrupt();
    session.work();
    compare_process(&outcome, session.pid, &output);
}

#[test]
fn r18_all_of_redis_is_seen() {
    compare(orders::redis(), Numbers::New);
}

#[test]
fn r18_all_of_nginx_is_seen() {
    compare(orders::nginx(), Numbers::New);
}

#[test]
fn r18_all_of_sshd_is_seen() {
    compare(orders::sshd(), Numbers::New);
}
