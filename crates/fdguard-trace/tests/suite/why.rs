//! Who holds the descriptors of a Python program, in every version. The victim says what it holds
//! how, and what a collection then takes.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use fdguard_trace::{HeapAnswer, HeapTarget, WalkFaults};

use super::python::interpreter;

pub(super) const MINORS: [&str; 5] = ["3.9", "3.10", "3.11", "3.12", "3.13"];

/// A group of descriptors, and what each chain of the answer says of it.
const CASES: [(&str, &str); 32] = [
    (
        "registry",
        "Writer.f ← dict['stream'] ← dict (3 entries) ← __main__.registry [object]",
    ),
    (
        "slots",
        "Slot.sock ← set (3 entries) ← __main__.slots [object]",
    ),
    ("class", "epoll ← list (3 entries) ← Tool.pool [object]"),
    (
        "closure",
        "closure of closed_over.<locals>.<lambda>() ← list (1 entry) ← __main__.callbacks",
    ),
    (
        "atexit",
        "closure of at_exit.<locals>.<lambda>() ← an atexit callback [object]",
    ),
    ("generator", "local `opened` of lines() why.py:"),
    ("task", "local `conn` of worker() why.py:"),
    ("thread", "local `held` of waiter() why.py:"),
    (
        "local",
        "dict['file'] ← dict (2 entries) ← _local ← __main__.local [object]",
    ),
    ("traceback", "local `bad` of job() why.py:"),
    (
        "method",
        "Document.text ← method Document.save() ← list (1 entry) ← __main__.methods",
    ),
    (
        "pair",
        "BufferedRWPair ← list (1 entry) ← __main__.pairs [object]",
    ),
    ("mmap", "mmap ← list (1 entry) ← __main__.maps [object]"),
    (
        "scandir",
        "ScandirIterator ← list (1 entry) ← __main__.scans [object]",
    ),
    ("sqlite", "← __main__.database [object]"),
    ("attached", "Connection ← __main__.journalled [object]"),
    ("journal", "Connection ← __main__.journalled [object]"),
    ("temporary", "Connection ← __main__.journalled [object]"),
    (
        "cursor",
        "Cursor ← list (1 entry) ← __main__.cursors [object]",
    ),
    ("loop", "._selector ← a running event loop [object]"),
    (
        "default",
        "BufferedReader ← default argument of with_default() ← __main__.with_default [object]",
    ),
    (
        "keyword",
        "list (1 entry) ← dict['kept'] ← default argument of with_keyword() ← __main__.",
    ),
    ("logging", "← logging.Logger.manager [object]"),
    (
        "exits",
        "← method _IOBase.__exit__() ← tuple (2 entries) ← deque",
    ),
    ("connection", "Connection ← __main__."),
    ("borrowed", "BufferedReader ← __main__.owner [object]"),
    (
        "frozen",
        "BufferedReader ← list (1 entry) ← __main__.frozen [object]",
    ),
    ("raw", "no object owns these numbers"),
    ("dropped", "no object owns these numbers"),
    (
        "weak",
        "held by BufferedReader ← __main__.observed [object]",
    ),
    (
        "weak-cycle",
        "only an unreachable cycle holds them: Document → BufferedReader; gc is off",
    ),
    (
        "cycle",
        "only an unreachable cycle holds them: Document → BufferedReader; gc is off",
    ),
];

/// A program that says what it holds, line by line.
pub(super) struct Victim {
    pub(super) child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    pub(super) held: BTreeMap<String, Vec<u32>>,
}

impl Victim {
    /// `None` if there is no such interpreter.
    pub(super) fn start(minor: &str) -> Option<Self> {
        Self::start_script(minor, "why.py")
    }

    /// The same with another script.
    pub(super) fn start_script(minor: &str, script: &str) -> Option<Self> {
        Self::start_in(minor, script, &[])
    }

    /// The same with variables.
    pub(super) fn start_in(
        minor: &str,
        script: &str,
        environment: &[(&str, &Path)],
    ) -> Option<Self> {
        let Some(python) = interpreter(minor) else {
            testkit::skip(&format!("no Python {minor} in pyenv"));
            return None;
        };
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims");
        let script = dir.join(script);
        let mut child = Command::new(python)
            .arg(script)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let held = BTreeMap::new();
        let mut victim = Self {
            child,
            input,
            lines,
            held,
        };
        loop {
            let (name, fds) = victim.next_line();
            if name == "READY" {
                return Some(victim);
            }
            victim.held.insert(name, fds);
        }
    }

    fn next_line(&mut self) -> (String, Vec<u32>) {
        let line = self.lines.next().expect("the victim lives").unwrap();
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default().to_owned();
        (name, words.map(|word| word.parse().unwrap()).collect())
    }

    fn tell(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    pub(super) fn target(&self) -> HeapTarget {
        HeapTarget::examine(self.child.id()).unwrap()
    }

    /// What it has open, after whether it has children that it can wait for.
    pub(super) fn state(&mut self) -> (String, Vec<u32>) {
        self.tell("unharmed");
        self.next_line()
    }

    /// How many `SIGCHLD` its handler has seen.
    pub(super) fn signals(&mut self) -> u32 {
        self.tell("signals");
        let (word, count) = self.next_line();
        assert_eq!(word, "signals");
        count[0]
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The chains of a group, one on each line.
pub(super) fn text(answer: &HeapAnswer, group: usize) -> String {
    let chains = answer.whys[group].chains.iter();
    let lines = chains.map(|chain| format!("{} [{}]", chain.text, chain.basis.text()));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn w22_every_holder_is_named_in_every_version() {
    let mut wrong = Vec::new();
    for minor in MINORS {
        let Some(victim) = Victim::start(minor) else {
            continue;
        };
        let groups = CASES.iter().map(|(name, _)| victim.held[*name].clone());
        let mut groups: Vec<Vec<u32>> = groups.collect();
        // The file, `-wal` and `-shm`.
        assert_eq!(victim.held["sqlite"].len(), 3, "{minor}");
        let several = ["closure", "cycle", "registry"].map(|name| victim.held[name].clone());
        groups.push(several.concat());
        let answer = victim.target().ask(&groups, None).unwrap();
        let counts = answer.whys[CASES.len()].chains.iter().map(|one| one.count);
        assert_eq!(counts.collect::<Vec<_>>(), [40, 3, 1], "{minor}");
        for (at, (name, expected)) in CASES.iter().enumerate() {
            let said = text(&answer, at);
            let is_right = said.lines().all(|chain| chain.contains(expected));
            let count: usize = answer.whys[at].chains.iter().map(|one| one.count).sum();
            if !is_right || count != groups[at].len() {
                wrong.push(format!("{minor} {name}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn w22_what_is_unreachable_is_what_a_collection_then_takes() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let answer = victim.target().ask(&[], None).unwrap();
        victim.tell("collect");
        let (word, taken) = victim.next_line();
        assert_eq!(word, "collected");
        assert_eq!(answer.unreachable, Some(taken[0] as usize), "{minor}");
        assert!(answer.unreachable >= Some(40), "{minor}");
    }
}

#[test]
fn w22_plain_numbers_are_judged_by_two_walks_and_never_by_one() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let target = victim.target();
        let groups = [victim.held["raw"].clone(), victim.held["dropped"].clone()];
        let first = target.ask(&groups, None).unwrap();
        assert!(text(&first, 0).ends_with("[one walk]"), "{minor}");
        victim.tell("more");
        let (_, raw) = victim.next_line();
        let (_, dropped) = victim.next_line();
        assert_eq!(victim.next_line().0, "done", "{minor}");
        let second = target.ask(&[raw, dropped], Some(&first.seen)).unwrap();
        let said = text(&second, 0);
        assert!(
            said.contains("list (8 entries) ← __main__.raw"),
            "{minor}: {said}"
        );
        assert!(said.ends_with("[two walks]"), "{minor}: {said}");
        let said = text(&second, 1);
        let expected =
            "no object and no place in the heap holds these numbers: the result was dropped";
        assert!(said.starts_with(expected), "{minor}: {said}");
    }
}

/// Objects with one number each, and how they are held.
const ALIKE: [(&str, &str); 6] = [
    (
        "tuples",
        "held by 8 numbers ← tuple (4 entries) ← list (8 entries) ← tuple (2 entries) ← dict",
    ),
    ("dicts", "held by 8 numbers ← dict['fd'] ← list (8 entries)"),
    ("slotted", "held by 8 Numbered.fd ← list (8 entries)"),
    (
        "closed",
        "held by 8 numbers ← closure of number_in_closure.<locals>.<lambda>() ← list",
    ),
    ("threads", "local `fd` of number_in_thread() why.py"),
    (
        "arrays",
        "no object and no place in the heap holds these numbers: the result was dropped, or is",
    ),
];

#[test]
fn w22_numbers_in_objects_of_one_shape_are_found_and_never_called_dropped() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let target = victim.target();
        let more = |victim: &mut Victim| -> Vec<Vec<u32>> {
            victim.tell("more-alike");
            let groups = ALIKE.map(|_| victim.next_line().1).into();
            assert_eq!(victim.next_line().0, "done", "{minor}");
            groups
        };
        let known = more(&mut victim);
        let first = target.ask(&known, None).unwrap();
        let mut groups = more(&mut victim);
        for (group, known) in groups.iter_mut().zip(&known) {
            group.extend(known);
        }
        let second = target.ask(&groups, Some(&first.seen)).unwrap();
        for (at, (name, expected)) in ALIKE.iter().enumerate() {
            let said = text(&second, at);
            assert!(said.starts_with(expected), "{minor} {name}: {said}");
            let counts = second.whys[at].chains.iter().map(|one| one.count);
            assert_eq!(counts.sum::<usize>(), groups[at].len(), "{minor} {name}");
        }
    }
}

#[test]
fn w22_a_thread_that_keeps_the_gil_does_not_prevent_an_answer() {
    let Some(mut victim) = Victim::start("3.11") else {
        return;
    };
    victim.tell("keep-gil");
    let groups = [victim.held["registry"].clone()];
    let answer = victim.target().ask(&groups, None).unwrap();
    assert!(text(&answer, 0).contains("__main__.registry"));
}

#[test]
fn w22_a_program_that_is_asked_often_under_load_is_unharmed() {
    // `bench/why asks` asks a thousand times.
    let asks = std::env::var("FDGUARD_WHY_ASKS");
    let asks = asks.map_or(8, |asks| asks.parse::<usize>().unwrap());
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        victim.tell("work");
        assert_eq!(victim.next_line().0, "working", "{minor}");
        let before = victim.state();
        assert_eq!(before.0, "alone", "{minor}");
        // A thread waits for any child.
        victim.tell("child");
        let (_, child) = victim.next_line();
        let target = victim.target();
        let groups = [victim.held["slots"].clone()];
        let mut stops = Vec::new();
        let mut refused = 0;
        for _ in 0..asks {
            // The collector may run three times in a row; an answer is never wrong.
            match target.ask(&groups, None) {
                Ok(answer) => {
                    assert!(text(&answer, 0).contains("__main__.slots"), "{minor}");
                    stops.push(answer.stop);
                }
                Err(refusal) if refusal.reason.ends_with("3 times") => refused += 1,
                Err(refusal) => panic!("{minor}: {refusal}"),
            }
        }
        // One of a few is bad luck; many of them show how often that happens.
        let allowed = if asks < 100 { asks / 2 } else { asks / 10 };
        assert!(refused <= allowed, "{minor}: {refused} of {asks} refused");
        stops.sort();
        let (middle, most) = (stops[stops.len() / 2], stops.last());
        println!("{minor}: {asks} asks, {refused} refused, stop {middle:?}, at most {most:?}");
        assert_eq!(children(&victim), child, "{minor}: a copy is left");
        assert_eq!(victim.signals(), 0, "{minor}");
        victim.tell("end-child");
        assert_eq!(victim.next_line(), ("reaped".to_owned(), child), "{minor}");
        assert_eq!(victim.state(), before, "{minor}");
        // Its own child is heard of.
        testkit::wait_until("a signal", || victim.signals() == 1);
    }
}

/// The children of all threads of a victim, those that were not waited for among them.
pub(super) fn children(victim: &Victim) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", victim.child.id())).unwrap();
    let children = tasks.map(|task| {
        let path = task.unwrap().path().join("children");
        std::fs::read_to_string(path).unwrap()
    });
    let children = children.collect::<String>();
    let numbers = children.split_whitespace().map(|pid| pid.parse().unwrap());
    numbers.collect()
}

#[test]
fn w22_a_program_in_another_language_is_refused_in_one_line() {
    let mut child = Command::new("sleep").arg("30").spawn().unwrap();
    let refusal = HeapTarget::examine(child.id()).unwrap_err();
    assert!(refusal.is_language);
    assert_eq!(
        refusal.to_string(),
        "this language keeps no record of who holds a number"
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Begins, makes objects, and ends with a status of its own.
const SHORT: &str = "
import json, threading, socket
kept = [[number, {'a': number}] for number in range(20000)]
raise SystemExit(7)
";

#[test]
fn w22_a_program_that_is_asked_while_it_starts_and_ends_ends_as_it_would() {
    for minor in MINORS {
        let Some(python) = interpreter(minor) else {
            testkit::skip(&format!("no Python {minor} in pyenv"));
            continue;
        };
        let (mut rounds, mut answered) = (0, 0);
        // Ten times, and until one was asked in the middle of its life.
        while rounds < 10 || answered == 0 {
            assert!(rounds < 100, "{minor}");
            rounds += 1;
            let mut child = Command::new(&python).args(["-c", SHORT]).spawn().unwrap();
            let status = loop {
                // Before its start and at its end there is no interpreter: that is an answer, too.
                let asked = HeapTarget::examine(child.id()).and_then(|one| one.ask(&[], None));
                answered += usize::from(asked.is_ok());
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
            };
            assert_eq!(status.code(), Some(7), "{minor}: {status}");
        }
    }
}

#[test]
fn w22_a_heap_that_is_being_collected_is_not_walked() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let target = victim.target();
        victim.tell("collect-slowly");
        assert_eq!(victim.next_line().0, "in-collection", "{minor}");
        let refusal = target.ask(&[], None).unwrap_err();
        let expected = "the collector was running, 3 times";
        assert_eq!(refusal.reason, expected, "{minor}");
        victim.tell("");
        assert_eq!(victim.next_line().0, "done", "{minor}");
        let groups = [victim.held["registry"].clone()];
        let answer = target.ask(&groups, None).unwrap();
        assert!(text(&answer, 0).contains("__main__.registry"), "{minor}");
    }
}

#[test]
fn w22_a_kernel_that_refuses_the_copy_is_an_ordinary_answer() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let Some(mut victim) = Victim::start("3.11") else {
        return;
    };
    let target = victim.target();
    target.ask(&[], None).unwrap();
    victim.tell("become-nobody");
    assert_eq!(victim.next_line().0, "nobody");
    let refusal = victim.target().ask(&[], None).unwrap_err();
    let expected = "the kernel refuses a copy of the process";
    assert!(refusal.reason.starts_with(expected), "{refusal}");
    assert_eq!(victim.state().0, "alone");
}

#[test]
fn w22_a_walker_that_faults_is_tried_again_and_harms_nothing() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let before = victim.state();
        let target = victim.target();
        let groups = [victim.held["registry"].clone()];
        let crashes = |crashes| WalkFaults {
            crashes,
            ..WalkFaults::default()
        };
        let answer = target.ask_with_faults(&groups, None, &crashes(2)).unwrap();
        assert!(text(&answer, 0).contains("__main__.registry"), "{minor}");
        let refusal = target.ask_with_faults(&groups, None, &crashes(3));
        let expected = "the copy of the process ended, 3 times";
        assert_eq!(refusal.unwrap_err().reason, expected, "{minor}");
        assert_eq!(victim.state(), before, "{minor}");
        assert_eq!(victim.signals(), 0, "{minor}");
    }
}

#[test]
fn w22_a_thread_that_holds_a_socket_says_how_long_it_has_waited_in_which_call() {
    for minor in MINORS {
        let Some(victim) = Victim::start(minor) else {
            continue;
        };
        let groups = [victim.held["recv"].clone()];
        let target = victim.target();
        testkit::wait_until("a wait of a second", || {
            let answer = target.ask(&groups, None).unwrap();
            let said = text(&answer, 0);
            assert!(said.contains("of receiver() why.py:"), "{minor}: {said}");
            let wait = said.split_once(", which has waited ");
            wait.is_some_and(|(before, wait)| {
                assert!(before.contains(" in thread "), "{minor}: {said}");
                wait.contains(" s in recv")
            })
        });
    }
}

/// A group of the memory controller (version 1), removed at the end.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// `None` where there is no such controller, or it cannot be used.
    fn create(limit: u64) -> Option<Self> {
        let name = format!("fdguard-test-{}", std::process::id());
        let dir = Path::new("/sys/fs/cgroup/memory").join(name);
        std::fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        std::fs::write(group.0.join("memory.limit_in_bytes"), limit.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        testkit::wait_until("the group is empty", || {
            std::fs::read_to_string(self.0.join("cgroup.procs")).is_ok_and(|pids| pids.is_empty())
        });
        drop(std::fs::remove_dir(&self.0));
    }
}

#[test]
fn w22_a_memory_limit_of_the_first_version_refuses_the_walk() {
    let Some(group) = MemoryGroup::create(16 << 20) else {
        return testkit::skip("needs the memory controller of cgroup version 1");
    };
    let Some(victim) = Victim::start("3.11") else {
        return;
    };
    let pid = victim.child.id().to_string();
    let target = victim.target();
    target.ask(&[], None).unwrap();
    // What it has already stays in its old group.
    std::fs::write(group.0.join("cgroup.procs"), pid).unwrap();
    let refusal = target.ask(&[], None).unwrap_err();
    let expected = "its memory limit leaves 16 MiB, and a walk may take ";
    assert!(refusal.reason.starts_with(expected), "{refusal}");
    drop(victim);
}
