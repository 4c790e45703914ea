//! `fdguard why`: which object holds a descriptor.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use super::run;

/// Twelve files in objects in a list, and then it waits until its input ends.
const REGISTRY: &str = "
import sys
class Session:
    def __init__(self):
        self.log = open('/proc/self/stat')
SESSIONS = []
for _ in range(12):
    SESSIONS.append(Session())
print('READY', flush=True)
sys.stdin.read()
";

fn registry() -> Child {
    let mut child = Command::new("python3")
        .args(["-c", REGISTRY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "READY\n");
    child
}

#[test]
fn w22_a_registry_that_is_never_emptied_is_named() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let mut program = registry();
    let output = run(["why", &program.id().to_string()]);
    assert_eq!(output.code, 0, "{}", output.stderr);
    let text = output.text();
    let chain = "held by 12 Session.log ← list (12 entries) ← __main__.SESSIONS [object]";
    assert!(text.lines().any(|line| line.trim() == chain), "{text}");
    // It goes on, and ends by itself.
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}

#[test]
fn w22_a_question_that_cannot_be_answered_is_refused() {
    let output = run(["why", "4194304"]);
    assert_eq!(output.code, 3, "{}", output.stderr);
    let output = run(["why", "nobody"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
    let output = run(["check", "--why", "--exercise", "true", "--", "true"]);
    assert_eq!(output.code, 2, "{}", output.stderr);
}
