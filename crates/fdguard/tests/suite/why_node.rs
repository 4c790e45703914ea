//! `fdguard why` of a Node program: which object holds a descriptor, in every version.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;
use testkit::{TestRuntime, is_root, runtimes, skip};

use super::run;

/// A group of descriptors, and what the answer says of it.
const CASES: [(&str, &str); 11] = [
    (
        "map",
        "Socket ← Map (4 entries) ← variable `sessions` of why.cjs [object]",
    ),
    (
        "loop",
        "only its event-loop handle keeps the Socket [event loop]",
    ),
    ("server", "held by Server ← "),
    (
        "agent",
        "Agent.freeSockets ← variable `agent` of why.cjs [object]",
    ),
    (
        "set",
        "held by 3 FileHandle ← Set (3 entries) ← variable `handles` of why.cjs [object]",
    ),
    (
        "nested",
        "FileHandle ← Object['stream'] ← Array (1 entry) ← Object['open'] ← variable `registry`",
    ),
    (
        "timer",
        "ReadStream ← local `stream` of <anonymous>() why.cjs:",
    ),
    (
        "generator",
        "held by FileHandle ← generates() why.cjs:40 ← Array (1 entry) ← variable `generators` of",
    ),
    (
        "stored",
        "held by 3 FileHandle ← Object['kept'] ← Timeout.kResourceStore ← a timer [object]",
    ),
    (
        "process",
        "FileHandle ← Array (1 entry) ← process.kept ← globalThis.process [object]",
    ),
    ("waits", "held by FileHandle ← waits() why.cjs:"),
];

/// Tests run side by side, and Node has one port for its inspector.
fn inspector_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    format!("--inspect-port={port}")
}

struct Victim {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    held: BTreeMap<String, Vec<u64>>,
}

impl Victim {
    fn start(node: &TestRuntime) -> Self {
        Self::start_with(node, &[], Stdio::null())
    }

    fn start_with(node: &TestRuntime, options: &[&str], complaints: Stdio) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node/why.cjs");
        let mut child = Command::new(&node.path)
            .arg(inspector_port())
            .args(options)
            .arg(script)
            .env_remove("NODE_OPTIONS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut victim = Self {
            child,
            input,
            lines,
            held: BTreeMap::new(),
        };
        victim.wait();
        victim
    }

    /// Reads what it says until it is done.
    fn wait(&mut self) {
        loop {
            let line = self.lines.next().expect("the victim lives").unwrap();
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            if name == "DONE" {
                return;
            }
            let fds = words.map(|word| word.parse::<u64>().unwrap());
            self.held.entry(name).or_default().extend(fds);
        }
    }

    fn obey(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
        self.wait();
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn open(&self) -> Vec<String> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let mut links: Vec<String> = entries
            .flatten()
            .filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .map(|link| link.to_string_lossy().into_owned())
            .collect();
        links.sort();
        links
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What the answer says of each descriptor of a group, each text once.
fn texts(answer: &Value, fds: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    for site in answer["sites"].as_array().unwrap() {
        for chain in site["why"]["chains"].as_array().unwrap() {
            let held = chain["fds"].as_array().unwrap();
            let text = format!("{} [{}]", chain["text"].as_str().unwrap(), basis(chain));
            let is_meant = |fd: &u64| held.contains(&Value::from(*fd));
            if fds.iter().any(is_meant) && !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

fn basis(chain: &Value) -> String {
    chain["basis"].as_str().unwrap().replace('_', " ")
}

fn ask(victim: &Victim) -> Value {
    let output = run(["why", &victim.pid(), "--json", "--wait", "100ms"]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let document: Value = serde_json::from_str(output.text()).unwrap();
    document["processes"][0].clone()
}

fn nodes() -> Vec<TestRuntime> {
    runtimes("node", &[18, 20, 22])
}

#[test]
fn w22_every_holder_of_a_node_program_is_named_in_every_version() {
    if !is_root() {
        return skip("needs root");
    }
    let mut wrong = Vec::new();
    for node in nodes() {
        let victim = Victim::start(&node);
        let answer = ask(&victim);
        for (name, expected) in CASES {
            let said = texts(&answer, &victim.held[name]);
            let is_right = said.iter().all(|text| text.contains(expected));
            if said.is_empty() || !is_right {
                wrong.push(format!("{:?} {name}: {said:?}", node.path));
            }
        }
        assert!(answer["objects"].as_u64() > Some(10_000), "{answer}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// With room enough that the program does not collect by itself.
const NO_COLLECTION: [&str; 3] = [
    "--min-semi-space-size=64",
    "--max-semi-space-size=64",
    "--no-memory-reducer",
];

#[test]
fn w22_a_node_program_that_is_asked_is_unharmed() {
    if !is_root() {
        return skip("needs root");
    }
    for node in nodes() {
        let complaints = tempfile::NamedTempFile::new().unwrap();
        let stderr = complaints.reopen().unwrap().into();
        let mut victim = Victim::start_with(&node, &NO_COLLECTION, stderr);
        let before = victim.open();
        let dropped = victim.held["dropped"].clone();
        let answer = ask(&victim);
        let said = texts(&answer, &dropped);
        let expected = "only garbage has the FileHandle: Node closes it when it collects";
        let is_right = said.len() == 1 && said[0].starts_with(expected);
        assert!(is_right, "{:?} {said:?}", node.path);
        victim.obey("check");
        assert_eq!(victim.held["open"], dropped, "{:?}", node.path);
        // The inspector closes its sockets by and by.
        testkit::wait_until("all is as it was", || victim.open() == before);
        let children = format!("/proc/{0}/task/{0}/children", victim.pid());
        testkit::wait_until("no copy is left", || {
            std::fs::read_to_string(&children).is_ok_and(|text| text.is_empty())
        });
        victim.obey("more");
        let complaints = std::fs::read_to_string(complaints.path()).unwrap();
        let is_closed = complaints.contains("Closing file descriptor");
        assert!(!is_closed, "{:?} {complaints}", node.path);
        // No child was heard of; one that is would be.
        assert_eq!(signals(&mut victim), 0, "{:?}", node.path);
        victim.obey("raise");
        testkit::wait_until("a signal", || signals(&mut victim) == 1);
    }
}

/// How many `SIGCHLD` the victim's handler has seen.
fn signals(victim: &mut Victim) -> u64 {
    victim.held.remove("signals");
    victim.obey("signals");
    victim.held["signals"][0]
}

#[test]
fn w22_plain_numbers_of_node_are_judged_by_two_walks() {
    if !is_root() {
        return skip("needs root");
    }
    for node in nodes() {
        let mut victim = Victim::start(&node);
        let pid = victim.pid();
        let asked = std::thread::spawn(move || run(["why", &pid, "--json", "--wait", "6s"]));
        // More are opened until it has seen enough of them.
        while !asked.is_finished() {
            victim.obey("more");
            std::thread::park_timeout(std::time::Duration::from_millis(200));
        }
        let output = asked.join().unwrap();
        assert_eq!(output.code, 0, "{}", output.stderr);
        let document: Value = serde_json::from_str(output.text()).unwrap();
        let mut chains = Vec::new();
        for site in document["processes"][0]["sites"].as_array().unwrap() {
            for chain in site["why"]["chains"].as_array().unwrap() {
                let is_two = chain["basis"] == "two_walks";
                chains.extend(is_two.then(|| chain.clone()));
            }
        }
        for (name, expected) in [
            ("numbers", "← globalThis.numbers"),
            ("writers", "Writer.fd ← Array"),
            ("lost", "no object, array, Map or Set has these numbers"),
        ] {
            let of_name = &victim.held[name];
            let about: Vec<&Value> = chains
                .iter()
                .filter(|chain| {
                    let fds = chain["fds"].as_array().unwrap();
                    fds.iter().all(|fd| of_name.contains(&fd.as_u64().unwrap()))
                })
                .collect();
            let is_right = |chain: &&&Value| chain["text"].as_str().unwrap().contains(expected);
            assert!(!about.is_empty(), "{:?} {name}: {document:#}", node.path);
            let right = about.iter().filter(is_right).count();
            assert_eq!(right, about.len(), "{:?} {name}: {about:?}", node.path);
        }
    }
}

/// Opens files until it was copied twice, and ends by itself before anybody could ask at the end.
const ENDING: &str = "
const fs = require('fs');
const handles = new Map();
let [count, copies, wasCopied] = [0, 0, false];
setInterval(async () => {
  const handle = await fs.promises.open('/proc/self/stat');
  handles.set(count += 1, handle);
}, 100);
setInterval(() => {
  const isCopied = fs.readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8') !== '';
  if (wasCopied && !isCopied) copies += 1;
  wasCopied = isCopied;
  if (copies === 2) setTimeout(() => process.exit(0), 300);
}, 20);
";

#[test]
fn a_traced_program_that_ends_by_itself_has_answers_for_what_grew() {
    let Some(node) = runtimes("node", &[22]).pop() else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("ending.cjs");
    std::fs::write(&script, ENDING).unwrap();
    let output = run([
        "trace".as_ref(),
        "--why".as_ref(),
        "--json".as_ref(),
        "--".as_ref(),
        node.path.as_os_str(),
        inspector_port().as_ref(),
        script.as_os_str(),
    ]);
    assert!(
        !output.stdout.is_empty(),
        "{}: {}",
        output.code,
        output.stderr
    );
    let found = output.json();
    let sites = found["why"][0]["sites"].as_array().unwrap();
    let texts = sites.iter().flat_map(|site| {
        let chains = site["why"]["chains"].as_array().unwrap().iter();
        chains.map(|chain| chain["text"].as_str().unwrap().to_owned())
    });
    let texts: Vec<String> = texts.collect();
    let is_it = |text: &String| {
        text.contains("FileHandle ← Map (") && text.contains("variable `handles` of ending.cjs")
    };
    assert!(texts.iter().any(is_it), "{texts:#?}");
}
