//! `fdguard trace PID` of a Node program: its JavaScript lines, by way of its inspector.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::{TestRuntime, is_root, runtimes, skip};

use super::attaching::{AttachOutcome, Attaching, Runner, is_left};
use super::leakbench;

fn nodes() -> Vec<TestRuntime> {
    runtimes("node", &[18, 20, 22])
}

fn newest() -> Option<TestRuntime> {
    nodes().pop()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/node")
        .join(name)
}

/// A port that nobody has: tests run side by side, and Node has one port.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// A Node program that waits for orders, and what it writes to stderr.
struct NodeRunner {
    runner: Runner,
    pid: String,
    port: u16,
    dir: tempfile::TempDir,
}

impl NodeRunner {
    fn start(node: &TestRuntime, name: &str, options: &[&str], own_handler: &str) -> Self {
        let port = free_port();
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(&node.path);
        command.arg(format!("--inspect-port={port}")).args(options);
        command.arg(script(name)).env_remove("NODE_OPTIONS");
        if !own_handler.is_empty() {
            command.env("OWN_HANDLER", own_handler);
        }
        command.stderr(File::create(dir.path().join("stderr")).unwrap());
        let runner = Runner::of(&mut command);
        let pid = runner.pid.to_string();
        Self {
            runner,
            pid,
            port,
            dir,
        }
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap()
    }

    /// Attaches, and waits until the lines are recorded or not.
    fn attach(&self) -> Attaching {
        let mut attaching = Attaching::trace(&[&self.pid]);
        attaching.wait_for("JavaScript lines of");
        attaching
    }

    /// Attaches to one that gets no agent: it works on, and the report has a gap with this reason.
    fn refuses(self, reason: &str) {
        let attaching = self.attach();
        self.goes_without(attaching, reason);
    }

    fn goes_without(mut self, attaching: Attaching, reason: &str) {
        assert!(self.runner.say("sync").starts_with("sync "));
        let outcome = attaching.interrupt();
        let gaps = outcome.found["gaps"].to_string();
        assert!(gaps.contains("the JavaScript lines of"), "{outcome:?}");
        assert!(gaps.contains(reason), "{gaps}");
        assert!(gaps.contains("fdguard trace -- COMMAND"), "{gaps}");
        assert_eq!(outcome.found["coverage"]["backend"], "inject");
        assert!(self.runner.say("sync").starts_with("sync "));
        assert_eq!(self.stderr(), "");
        self.runner.end();
    }
}

/// How many descriptors were opened at a marked line.
fn opened(outcome: &AttachOutcome, name: &str, mark: &str) -> u64 {
    let text = std::fs::read_to_string(script(name)).unwrap();
    let mark = format!("// {mark}");
    let line = text.lines().position(|line| line.ends_with(&mark)).unwrap() + 1;
    let sites = outcome.found["sites"].as_array().unwrap().iter();
    let is_it = |site: &&Value| {
        let file = site["culprit"]["file"].as_str().unwrap_or_default();
        site["culprit"]["line"] == line && file.ends_with(name)
    };
    sites
        .filter(is_it)
        .map(|site| site["opened"].as_u64().unwrap())
        .sum()
}

/// `kept`: functions that the script took out of `fs` before.
const ORDERS: [&str; 6] = ["sync", "open", "promise", "kept", "kept2", "connect"];

fn every_line_is_named(name: &str) {
    for node in nodes() {
        let mut program = NodeRunner::start(&node, name, &[], "");
        let attaching = program.attach();
        let announced = format!("port {} for a moment: Node prints", program.port);
        assert!(attaching.said.contains(&announced), "{}", attaching.said);
        assert!(!is_open(program.port), "Node {}", node.version);
        for order in ORDERS {
            for _ in 0..3 {
                let answer = program.runner.say(order);
                assert!(answer.starts_with(order), "{answer}");
            }
        }
        let outcome = attaching.interrupt();
        for order in ORDERS {
            let mark = order.to_uppercase();
            let count = opened(&outcome, name, &mark);
            assert_eq!(count, 3, "Node {} {mark}: {outcome:?}", node.version);
        }
        assert_eq!(outcome.found["gaps"], json!([]), "{outcome:?}");
        let stderr = program.stderr();
        let listening = format!("Debugger listening on ws://127.0.0.1:{}/", program.port);
        assert!(stderr.contains(&listening), "{stderr}");
        assert!(stderr.lines().count() <= 6, "{stderr}");
        assert!(is_left(program.runner.pid));
        program.runner.say("sync");
        program.runner.end();
    }
}

#[test]
fn every_request_of_a_running_script_has_its_line() {
    every_line_is_named("attached.cjs");
}

#[test]
fn names_that_a_module_imported_before_have_their_lines() {
    every_line_is_named("attached.mjs");
}

#[test]
fn after_the_trace_the_functions_are_those_of_node_and_it_can_be_traced_again() {
    for node in nodes() {
        let mut program = NodeRunner::start(&node, "attached.cjs", &[], "");
        for round in 0..3 {
            let attaching = program.attach();
            assert_eq!(program.runner.say("patched"), "patched true");
            program.runner.say("sync");
            let outcome = attaching.interrupt();
            assert_eq!(opened(&outcome, "attached.cjs", "SYNC"), 1, "{outcome:?}");
            // In one round the agent does not notice that the library left.
            if round != 1 {
                program.runner.say("sync");
                assert_eq!(program.runner.say("patched"), "patched false");
            }
            assert!(!is_open(program.port));
        }
        program.runner.end();
    }
}

#[test]
fn a_program_that_handles_the_signal_itself_does_not_get_it() {
    for node in nodes() {
        let program = NodeRunner::start(&node, "attached.cjs", &[], "yes");
        program.refuses("handles SIGUSR1 itself");
        let program = NodeRunner::start(&node, "attached.cjs", &[], "removed");
        program.refuses("does not listen for SIGUSR1");
    }
}

#[test]
fn an_inspector_that_must_stay_closed_stays_closed() {
    let Some(node) = newest() else { return };
    let program = NodeRunner::start(&node, "attached.cjs", &[], "");
    let mut attaching = Attaching::trace(&[&program.pid, "--no-inspector"]);
    attaching.wait_for("no JavaScript lines of");
    assert!(
        !attaching.said.contains("using Node's"),
        "{}",
        attaching.said
    );
    program.goes_without(attaching, "--no-inspector leaves Node's inspector closed");
}

#[test]
fn a_check_keeps_an_inspector_closed_as_well() {
    let Some(node) = newest() else { return };
    let program = NodeRunner::start(&node, "attached.cjs", &[], "");
    let check = ["check", "--pid", &program.pid, "--no-inspector"];
    let exercise = ["--exercise", "true", "--cycles", "10", "--warmup", "0"];
    let outcome = Attaching::start(&[&check[..], &exercise].concat()).end();
    let said = &outcome.said;
    assert!(said.contains("no JavaScript lines of"), "{outcome:?}");
    assert!(!said.contains("using Node's"), "{outcome:?}");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(program.stderr(), "");
    program.runner.end();
}

#[test]
fn a_node_without_its_signal_is_left_alone() {
    let Some(node) = newest().filter(|node| node.version >= 22) else {
        return skip("needs Node 22");
    };
    let program = NodeRunner::start(&node, "attached.cjs", &["--disable-sigusr1"], "");
    program.refuses("--disable-sigusr1");
}

#[test]
fn a_port_of_another_process_is_not_touched() {
    let Some(node) = newest() else { return };
    let program = NodeRunner::start(&node, "attached.cjs", &[], "");
    let listener = TcpListener::bind(("127.0.0.1", program.port)).unwrap();
    listener.set_nonblocking(true).unwrap();
    program.refuses("in use by another process");
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn an_inspector_that_was_open_is_used_and_stays() {
    for node in nodes() {
        let mut program = NodeRunner::start(&node, "attached.cjs", &["--inspect"], "");
        assert!(is_open(program.port));
        let attaching = program.attach();
        program.runner.say("sync");
        let outcome = attaching.interrupt();
        assert_eq!(opened(&outcome, "attached.cjs", "SYNC"), 1, "{outcome:?}");
        assert!(is_open(program.port));
        program.runner.end();
    }
}

#[test]
fn the_loopback_of_another_network_is_entered() {
    if !is_root() {
        return skip("needs root for namespaces");
    }
    let Some(node) = newest() else { return };
    let mut command = Command::new("unshare");
    let line = "ip link set lo up && exec \"$0\" \"$1\"";
    command.args(["--net", "sh", "-c", line]).arg(&node.path);
    command
        .arg(script("attached.cjs"))
        .stderr(std::process::Stdio::null());
    let mut runner = Runner::of(command.env_remove("NODE_OPTIONS"));
    let mut attaching = Attaching::trace(&[&runner.pid.to_string()]);
    attaching.wait_for("JavaScript lines of");
    runner.say("sync");
    let outcome = attaching.interrupt();
    assert!(outcome.said.contains("on port 9229"), "{outcome:?}");
    assert_eq!(opened(&outcome, "attached.cjs", "SYNC"), 1, "{outcome:?}");
    runner.end();
}

#[test]
fn a_leak_of_the_bench_has_its_line() {
    leakbench::judged("attach", "node-fs-opensync");
}
