//! What an attached library sees, with `strace` as the judge: it watches the same process during
//! the same load.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};
use testkit::{have, skip};

use super::attaching::Attaching;
use super::orders::{self, Ordered};

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

/// What a process did, by `strace`: how many descriptors each call gave it. Threads count; children
/// and their children do not. Nor do files that the loader opens inside of itself.
fn given(output: &str, pid: u32) -> BTreeMap<String, u64> {
    let mut others: BTreeSet<&str> = BTreeSet::new();
    let mut begun: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut given = BTreeMap::new();
    for line in output.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        let call = call.trim_start();
        let resumed = call
            .strip_prefix("<... ")
            .and_then(|rest| rest.split_once(" resumed>"));
        let (name, arguments) = match resumed {
            Some((name, rest)) => (name, rest),
            None => call.split_once('(').unwrap_or((call, "")),
        };
        if arguments.ends_with("<unfinished ...>") {
            begun.insert((thread, name), arguments);
            continue;
        }
        let first = resumed
            .and_then(|_| begun.remove(&(thread, name)))
            .unwrap_or("");
        let Some((arguments, result)) = arguments.rsplit_once(" = ") else {
            continue;
        };
        let result = result.split(' ').next().unwrap_or_default();
        let all = format!("{first}{arguments}");
        let makes_process = matches!(name, "clone" | "clone3" | "fork" | "vfork");
        if makes_process && (!all.contains("CLONE_THREAD") || others.contains(thread)) {
            others.insert(result);
        }
        let is_done = result.parse::<i64>().is_ok_and(|number| number >= 0);
        if is_done && !others.contains(thread) && !is_by_the_loader(&all) {
            *given.entry(name.to_owned()).or_default() += count(name, &all);
        }
    }
    assert!(!others.contains(&*pid.to_string()));
    given.retain(|_, count| *count > 0);
    given
}

fn is_by_the_loader(arguments: &str) -> bool {
    [".so\"", ".so.", "/ld.so.cache"]
        .iter()
        .any(|part| arguments.contains(part))
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

/// Attaches, lets `strace` watch, too, and compares after some rounds.
fn compare(ordered: Option<Ordered>) {
    let Some(mut ordered) = ordered.filter(|_| have("strace")) else {
        skip("needs strace and the program");
        return;
    };
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
    let given = given(&text, pid);
    let sites = outcome.found["sites"].as_array().unwrap();
    let of_process = sites.iter().filter(|site| site["pid"] == pid);
    let sum = |key: &str| {
        of_process
            .clone()
            .filter_map(|site| site[key].as_u64())
            .sum::<u64>()
    };
    let (opened, live) = (sum("opened"), sum("live"));
    println!("strace {given:?}; seen {opened}, {live} live of {since}");
    assert_eq!(opened, given.values().sum::<u64>(), "{given:?} {outcome:?}");
    assert_eq!(live, since, "{outcome:?}");
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
    compare(orders::python());
}

#[test]
fn r18_all_of_node_is_seen() {
    compare(orders::node());
}

#[test]
fn r18_all_of_bash_is_seen() {
    compare(orders::bash());
}

#[test]
fn r18_all_of_java_is_seen() {
    compare(orders::java());
}

#[test]
fn r18_all_of_cpp_is_seen() {
    compare(orders::cpp());
}

#[test]
fn r18_all_of_rust_is_seen() {
    compare(orders::rust());
}

#[test]
fn r18_all_of_redis_is_seen() {
    compare(orders::redis());
}

#[test]
fn r18_all_of_nginx_is_seen() {
    compare(orders::nginx());
}
