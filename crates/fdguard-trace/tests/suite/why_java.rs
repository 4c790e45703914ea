//! Who holds the descriptors of a Java program, in every version. The victim says what it holds
//! how.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use fdguard_trace::{HeapAnswer, HeapTarget, expected_stop};
use testkit::{TestRuntime, have, runtimes, skip};

const VERSIONS: [u32; 3] = [11, 17, 21];

/// A group of descriptors, and what the answer says of it.
const CASES: [(&str, &str); 13] = [
    (
        "sessions",
        "FileInputStream ← WhyJava$Session.log ← ArrayList (5 entries) ← WhyJava.sessions [object]",
    ),
    (
        "sockets",
        "Socket ← ConcurrentHashMap (40 entries) ← WhyJava.sockets [object]",
    ),
    (
        "streams",
        "← HashSet (4 entries) ← WhyJava.streams [object]",
    ),
    ("scans", "← ArrayList (3 entries) ← WhyJava.scans [object]"),
    (
        "selectors",
        "← ArrayList (1 entry) ← WhyJava.selectors [object]",
    ),
    (
        "local",
        "FileInputStream ← a thread local of thread \"keeper\" [object]",
    ),
    ("slot", " of WhyJava.holdInSlot() WhyJava.java:"),
    (
        "reused",
        "held by 8 FileInputStream ← FileInputStream[] (8 entries) ← WhyJava.reused [object]",
    ),
    (
        "soft",
        "SoftReference ← ConcurrentHashMap (3 entries) ← WhyJava.soft [object]",
    ),
    (
        "by-unit",
        "FileInputStream ← EnumMap (2 entries) ← WhyJava.byUnit [object]",
    ),
    (
        "clients",
        "HttpClientFacade ← ArrayList (2 entries) ← WhyJava.clients; also ",
    ),
    ("watches", " ← ArrayList (2 entries) ← WhyJava.watches"),
    ("garbage", "only garbage carries the number"),
];

struct Victim {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    held: BTreeMap<String, Vec<u32>>,
}

impl Victim {
    /// `None` if there is no compiler.
    fn start(java: &TestRuntime, classes: &Path, options: &[&str]) -> Self {
        // Neither what it makes nor the classes it loads bring about a collection, which would take
        // what it has dropped.
        let mut child = Command::new(&java.path)
            .args(["-Xmn40m", "-XX:MetaspaceSize=256m"])
            .args(options)
            .arg("-cp")
            .arg(classes)
            .arg("WhyJava")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let held = BTreeMap::new();
        let mut victim = Self {
            child,
            input,
            lines,
            held,
        };
        loop {
            let line = victim.next_line();
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            if name == "READY" {
                return victim;
            }
            let fds = words.map(|word| word.parse().unwrap()).collect();
            victim.held.insert(name, fds);
        }
    }

    fn next_line(&mut self) -> String {
        self.lines.next().expect("the victim lives").unwrap()
    }

    fn state(&mut self) -> String {
        writeln!(self.input.as_mut().unwrap(), "state").unwrap();
        self.next_line()
    }

    fn threads(&self) -> usize {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        tasks.map_or(0, Iterator::count)
    }

    fn groups(&self) -> Vec<Vec<u32>> {
        CASES
            .iter()
            .map(|(name, _)| self.held[*name].clone())
            .collect()
    }

    fn ask(&self) -> HeapAnswer {
        let target = HeapTarget::examine(self.child.id()).unwrap().forced();
        target.ask(&self.groups(), None).unwrap()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The victim's classes; `None` if there is no compiler.
fn compile() -> Option<tempfile::TempDir> {
    if !have("javac") {
        skip("no javac");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/victims/WhyJava.java");
    let done = Command::new("javac")
        .args(["--release", "11", "-d"])
        .arg(dir.path())
        .arg(source)
        .status()
        .unwrap();
    assert!(done.success());
    Some(dir)
}

/// What is wrong in an answer.
fn wrong(version: u32, answer: &HeapAnswer, groups: &[Vec<u32>]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (at, (name, expected)) in CASES.iter().enumerate() {
        let chains = &answer.whys[at].chains;
        let count: usize = chains.iter().map(|chain| chain.count).sum();
        let is_right = chains
            .iter()
            .all(|chain| format!("{} [{}]", chain.text, chain.basis.text()).contains(expected));
        if !is_right || count != groups[at].len() || count == 0 {
            let texts: Vec<&str> = chains.iter().map(|chain| chain.text.as_str()).collect();
            wrong.push(format!("{version} {name} {:?}: {texts:?}", groups[at]));
        }
    }
    wrong
}

#[test]
fn w22_every_java_holder_is_named_in_every_version() {
    let Some(classes) = compile() else {
        return;
    };
    let mut all = Vec::new();
    for java in runtimes("java", &VERSIONS) {
        for options in [&["-XX:+UseSerialGC"], &["-XX:+UseG1GC"]] {
            let victim = Victim::start(&java, classes.path(), options);
            let answer = victim.ask();
            all.extend(wrong(java.version, &answer, &victim.groups()));
            assert!(answer.stop > Duration::ZERO);
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn w22_a_java_program_that_is_asked_often_is_unharmed() {
    const ASKS: usize = 10;
    let Some(classes) = compile() else {
        return;
    };
    for java in runtimes("java", &VERSIONS) {
        // With room enough that no collection takes the garbage between two asks.
        let options = [
            "-Xcheck:jni",
            "-Xms160m",
            "-Xmx160m",
            "-Xmn120m",
            "-XX:+UseSerialGC",
        ];
        let mut victim = Victim::start(&java, classes.path(), &options);
        let before = victim.state();
        let threads = victim.threads();
        for _ in 0..ASKS {
            let answer = victim.ask();
            assert_eq!(wrong(java.version, &answer, &victim.groups()), [""; 0]);
        }
        assert_eq!(victim.state(), before, "{}", java.version);
        testkit::wait_until("the library's thread has ended", || {
            victim.threads() <= threads
        });
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", victim.child.id()));
        assert!(!maps.unwrap().contains("fd600000000-"), "a page is left");
        drop(victim.input.take());
        assert_eq!(victim.child.wait().unwrap().code(), Some(7));
    }
}

/// What an answer says that is neither right nor undecided.
fn false_statements(answer: &HeapAnswer) -> Vec<String> {
    let mut found = Vec::new();
    for (at, (name, expected)) in CASES.iter().enumerate() {
        for chain in &answer.whys[at].chains {
            let text = format!("{} [{}]", chain.text, chain.basis.text());
            if !text.contains(expected) && !text.starts_with("not decided") {
                found.push(format!("{name}: {text}"));
            }
        }
    }
    found
}

#[test]
fn w22_a_large_java_heap_is_refused_with_its_stop_unless_it_is_forced() {
    let Some(classes) = compile() else {
        return;
    };
    for java in runtimes("java", &VERSIONS) {
        // What is large is old from the beginning: no collection comes for want of young space.
        let options = ["-Dlarge=60", "-Xmx256m", "-Xmn48m", "-XX:+UseSerialGC"];
        let victim = Victim::start(&java, classes.path(), &options);
        let target = HeapTarget::examine(victim.child.id()).unwrap();
        let refusal = target.ask(&victim.groups(), None).unwrap_err().to_string();
        assert!(
            refusal.contains("stops the program for up to "),
            "{refusal}"
        );
        assert!(refusal.contains("--force"), "{refusal}");
        let announced = expected_stop(victim.child.id()).unwrap();
        let answer = victim.ask();
        // The walker itself ends when that is over; this heap takes a small part of it.
        assert!(
            answer.stop <= announced.stop,
            "{:?} of {announced:?}",
            answer.stop
        );
        assert_eq!(wrong(java.version, &answer, &victim.groups()), [""; 0]);
    }
}

#[test]
fn w22_a_full_room_leaves_undecided_what_it_does_not_know() {
    let Some(classes) = compile() else {
        return;
    };
    for java in runtimes("java", &VERSIONS) {
        let options = ["-Dmany=1200000", "-Xmx256m", "-XX:+UseSerialGC"];
        let victim = Victim::start(&java, classes.path(), &options);
        let target = HeapTarget::examine(victim.child.id()).unwrap();
        let answer = target.ask(&victim.groups(), None).unwrap();
        assert_eq!(false_statements(&answer), [""; 0], "{}", java.version);
        // With room for all of it, a busy machine may still need more time than was announced.
        let answer = victim.ask();
        assert_eq!(false_statements(&answer), [""; 0], "{}", java.version);
    }
}

#[test]
fn w22_a_java_walk_ends_when_its_time_is_over() {
    let Some(classes) = compile() else {
        return;
    };
    for java in runtimes("java", &VERSIONS) {
        let options = ["-Dmany=1000000", "-Xmx256m", "-XX:+UseSerialGC"];
        let victim = Victim::start(&java, classes.path(), &options);
        let target = HeapTarget::examine(victim.child.id())
            .unwrap()
            .without_time();
        let answer = target.ask(&victim.groups(), None).unwrap();
        // Fewer than a hundredth of the objects were seen.
        assert!(
            answer.objects < 20_000,
            "{} {}",
            java.version,
            answer.objects
        );
        let chains = answer.whys.iter().flat_map(|why| &why.chains);
        let is_undecided = |text: &str| text.starts_with("not decided");
        assert!(chains.into_iter().any(|chain| is_undecided(&chain.text)));
    }
}
