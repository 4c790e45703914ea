//! `fdguard why`: which object holds a descriptor.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
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

pub(super) fn registry() -> Child {
    let mut command = Command::new("python3");
    command.args(["-c", REGISTRY]);
    let (child, _) = started(&mut command);
    child
}

/// Starts a program that ends with its input, and waits until it is ready; returns the rest of that
/// line.
pub(super) fn started(command: &mut Command) -> (Child, String) {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.as_mut().unwrap());
    output.read_line(&mut line).unwrap();
    let rest = line.strip_prefix("READY").unwrap().trim().to_owned();
    (child, rest)
}

/// The stories of the guide: the heading, the file, and the beginning of the answer.
const STORIES: [(&str, &str, &str); 3] = [
    (
        "## A registry that is never emptied",
        "run.py",
        "held by 44 ",
    ),
    (
        "## A traceback that a failed job keeps",
        "jobs.py",
        "held by 12 ",
    ),
    (
        "## A cycle, and the collector is off",
        "cycle.py",
        "only an unreachable cycle ",
    ),
];

#[test]
fn w22_the_stories_of_the_guide_are_true() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/why.md");
    let page = std::fs::read_to_string(page).unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (heading, file, beginning) in STORIES {
        let (_, story) = page.split_once(heading).unwrap();
        let (story, _) = story.split_once("\n## ").unwrap();
        let (_, code) = story.split_once("```python\n").unwrap();
        let (code, text) = code.split_once("```\n").unwrap();
        // The answer is between back quotes, and may be wrapped.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, answer) = text.split_once('`').unwrap();
        let answer = answer.trim_start_matches('`');
        let (answer, _) = answer.split_once("]`").unwrap();
        assert!(answer.starts_with(beginning), "{answer}");
        let code = format!("{code}\nimport sys\nprint('READY', flush=True)\nsys.stdin.read()\n");
        let code = code.replace("/tmp/", &format!("{}/", dir.path().display()));
        let script = dir.path().join(file);
        std::fs::write(&script, code).unwrap();
        let (mut program, _) = started(Command::new("python3").arg(&script));
        let output = run(["why", &program.id().to_string()]);
        assert_eq!(output.code, 0, "{}", output.stderr);
        let said = output.text();
        let expected = format!("{answer}]");
        assert!(
            said.lines().any(|line| line.trim() == expected),
            "{expected}\n{said}"
        );
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
    }
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
}

#[test]
fn w22_a_program_of_which_nothing_was_seen_is_no_answer() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    // The library cannot enter it, and it holds nothing.
    if !testkit::have("busybox") {
        return testkit::skip("no busybox: testkit/packages brings it");
    }
    let sleep = "exec busybox sleep 100 <&- >&- 2>&-";
    let mut shell = Command::new("sh");
    testkit::start_clean(&mut shell);
    let mut program = shell.args(["-c", sleep]).spawn().unwrap();
    let name = format!("/proc/{}/comm", program.id());
    testkit::wait_until("it sleeps", || {
        std::fs::read_to_string(&name).is_ok_and(|name| name == "busybox\n")
    });
    let output = run(["why", "--wait", "1s", &program.id().to_string()]);
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(output.code, 3, "{}", output.stderr);
    assert!(
        output.stderr.contains("nothing that it holds was seen"),
        "{}",
        output.stderr
    );
    assert_eq!(output.text(), "");
}

/// Keeps a file for each connection, and its number for every other, in plain lists.
const SERVER: &str = "
import os, socket
class Request:
    def __init__(self):
        self.log = open('/proc/self/stat')
HISTORY = []
NUMBERS = []
server = socket.create_server(('127.0.0.1', 0))
print('PORT', server.getsockname()[1], flush=True)
with open('port', 'w') as file:
    file.write(str(server.getsockname()[1]))
print('READY', flush=True)
while True:
    client, _ = server.accept()
    HISTORY.append(Request())
    NUMBERS.append(os.open('/proc/self/maps', os.O_RDONLY))
    client.close()
";
/// One request.
const ASK: &str = "python3 -c \"import socket; \
    socket.create_connection(('127.0.0.1', int(open('port').read()))).recv(1)\"";

#[test]
fn w22_an_exercised_server_is_asked_and_every_format_has_the_holder() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("server.py"), SERVER).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .current_dir(dir.path())
        .args(["check", "--why", "--json", "--sarif", "out.sarif"])
        .args(["--exercise", ASK, "--ready", "line:READY", "--cycles", "10"])
        .args(["--", "python3", "server.py"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let object = "Request.log ← list (";
    let number = "numbers ← list (";
    let sarif = std::fs::read_to_string(dir.path().join("out.sarif")).unwrap();
    let sarif: serde_json::Value = serde_json::from_str(&sarif).unwrap();
    let messages = sarif["runs"][0]["results"].as_array().unwrap();
    let messages: Vec<&str> = messages
        .iter()
        .map(|one| one["message"]["text"].as_str().unwrap())
        .collect();
    for (chain, root) in [(object, "__main__.HISTORY"), (number, "__main__.NUMBERS")] {
        let is_there = |text: &&str| text.contains(chain) && text.contains(root);
        assert!(messages.iter().any(is_there), "{chain}: {messages:?}");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.lines().last().unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["why"][0]["walks"], 2, "{json}");
}

#[test]
fn w22_the_page_of_a_trace_draws_what_holds_the_descriptors() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let code = format!("{REGISTRY}import time; time.sleep(60)");
    let arguments = ["trace", "--why", "--for", "4s", "--html"];
    let output = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .args(arguments)
        .arg(&page)
        .args(["--", "python3", "-c", &code])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let html = std::fs::read_to_string(&page).unwrap_or_default();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(html.contains("<h2>what holds them</h2>"), "{stderr}");
    for text in [
        ">12 files<",
        ">Session.log<",
        ">12 entries<",
        ">__main__.SESSIONS<",
    ] {
        assert!(html.contains(text), "{text}: {stderr}");
    }
    assert!(!html.contains("src=") && !html.contains("url("), "{stderr}");
}
