//! A copy of a program that does not come to an end, and an fdguard that does: the copy goes, and
//! the program does not notice.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fdguard_trace::{AttachedTrace, HeapTarget, Options, WalkFaults};

use super::why::{MINORS, Victim, children, text};

/// The process that the test below asks in a process of its own.
const ASKED: &str = "FDGUARD_TEST_ASKED";

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn w22_a_walk_that_does_not_end_is_ended_at_its_deadline() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let before = victim.state();
        let target = victim.target();
        let groups = [victim.held["registry"].clone()];
        let faults = WalkFaults {
            hangs: true,
            deadline: Some(SHORT),
            ..WalkFaults::default()
        };
        let refusal = target.ask_with_faults(&groups, None, &faults).unwrap_err();
        assert_eq!(refusal.reason, "the walk took too long", "{minor}");
        assert!(children(&victim).is_empty(), "{minor}: a copy is left");
        assert_eq!(victim.state(), before, "{minor}");
        assert_eq!(victim.signals(), 0, "{minor}");
        let answer = target.ask(&groups, None).unwrap();
        assert!(text(&answer, 0).contains("__main__.registry"), "{minor}");
    }
}

/// Asks a process, by a walker that hangs, until it is killed itself.
#[test]
fn a_question_without_an_answer() {
    let Ok(pid) = std::env::var(ASKED) else {
        return testkit::skip("no role was given");
    };
    let target = HeapTarget::examine(pid.parse().unwrap()).unwrap();
    let faults = WalkFaults {
        hangs: true,
        life: Some(Duration::from_secs(1)),
        ..WalkFaults::default()
    };
    // Only if the copy ends before.
    drop(target.ask_with_faults(&[], None, &faults));
}

fn file(pid: u32, name: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

#[test]
fn w22_a_copy_ends_by_itself_when_fdguard_is_killed_in_the_middle_of_a_walk() {
    for minor in MINORS {
        let Some(mut victim) = Victim::start(minor) else {
            continue;
        };
        let before = victim.state();
        let role = std::env::current_exe().unwrap();
        let name = "suite::why_deadline::a_question_without_an_answer";
        let mut asking = Command::new(role)
            .args(["--exact", name])
            .env(ASKED, victim.child.id().to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let copy = testkit::wait_for("a copy that walks", || {
            let mut children = children(&victim).into_iter();
            children.find(|pid| file(*pid, "comm") == "fdguard-why\n")
        });
        asking.kill().unwrap();
        asking.wait().unwrap();
        // It ends by its own clock; its entry stays until the program is asked again.
        testkit::wait_until("the copy has ended", || file(copy, "stat").contains(") Z "));
        assert_eq!(victim.state(), before, "{minor}");
        let groups = [victim.held["registry"].clone()];
        let answer = victim.target().ask(&groups, None).unwrap();
        assert!(text(&answer, 0).contains("__main__.registry"), "{minor}");
        assert!(children(&victim).is_empty(), "{minor}: a copy is left");
        assert_eq!(victim.state(), before, "{minor}");
        assert_eq!(victim.signals(), 0, "{minor}");
    }
}

/// Holds a file, and says how many descriptors are open whenever it is asked.
const NODE: &str = "
const fs = require('fs');
let signals = 0;
process.on('SIGCHLD', () => { signals += 1; });
const kept = fs.openSync('/proc/self/stat');
require('readline').createInterface({ input: process.stdin }).on('line', () => {
  console.log('STATE', signals, kept);
}).on('close', () => process.exit(7));
console.log('READY');
";

struct NodeVictim {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl NodeVictim {
    /// `None` if there is no Node.
    fn start() -> Option<Self> {
        let node = testkit::runtimes("node", &[22]).pop()?;
        // Tests run side by side, and Node has one port for its inspector.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut child = Command::new(&node.path)
            .arg(format!("--inspect-port={port}"))
            .args(["-e", NODE])
            .env_remove("NODE_OPTIONS")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut victim = Self { child, lines };
        assert_eq!(victim.next_line(), "READY");
        Some(victim)
    }

    fn next_line(&mut self) -> String {
        self.lines.next().expect("the victim lives").unwrap()
    }

    fn children(&self) -> String {
        file(
            self.child.id(),
            &format!("task/{}/children", self.child.id()),
        )
    }
}

#[test]
fn w22_a_copy_of_node_that_does_not_end_is_ended_at_its_deadline() {
    let Some(mut victim) = NodeVictim::start() else {
        return;
    };
    // The library answers what the copy asks, which takes its hooks.
    let pids = [victim.child.id()];
    let attached = AttachedTrace::attach(&pids, &Options::default(), &|| false, &mut |_| {});
    let attached = attached.unwrap();
    assert_eq!(attached.pids(), pids);
    let target = HeapTarget::examine(victim.child.id()).unwrap();
    for (hangs, is_endless) in [(true, false), (false, true)] {
        let faults = WalkFaults {
            hangs,
            is_endless,
            deadline: Some(SHORT),
            ..WalkFaults::default()
        };
        let refusal = target.ask_with_faults(&[], None, &faults).unwrap_err();
        let expected = "the copy of the process has not finished in time, 3 times";
        assert_eq!(refusal.reason, expected, "{hangs}");
        assert_eq!(victim.children(), "", "a copy is left");
    }
    assert!(target.ask(&[], None).is_ok());
    attached.detach();
    // It lives, and its end is its own.
    writeln!(victim.child.stdin.as_mut().unwrap()).unwrap();
    assert!(victim.next_line().starts_with("STATE 0 "));
    drop(victim.child.stdin.take());
    assert_eq!(victim.child.wait().unwrap().code(), Some(7));
}
