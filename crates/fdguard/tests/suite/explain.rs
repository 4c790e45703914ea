//! Logs in, walls and holders out.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};
use testkit::Victim;

use super::{AsNobody, CommandOutput, fdguard, run};

const SURE: &str = "OSError: [Errno 24] Too many open files: '/srv/state.db'";
const DOUBTFUL: &str = "curl: (6) Could not resolve host: api.example.org";

/// `fdguard explain` with a log on standard input.
fn explain(log: &[u8], args: &[&str]) -> CommandOutput {
    let mut command = fdguard();
    command.arg("explain").args(args).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let log = log.to_owned();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&log)));
    let said = CommandOutput::of(child.wait_with_output().unwrap());
    writer.join().unwrap();
    said
}

#[test]
fn r17_the_culprit_s_sentence_comes_first() {
    let log = format!("start\n{DOUBTFUL}\n{SURE}\n{SURE}\nend\n");
    let said = explain(log.as_bytes(), &[]);
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let first = said.text().lines().next().unwrap();
    let expected = format!(
        "2 lines report that descriptors ran out, and 1 more may mean it, first at line 3: {SURE}"
    );
    assert_eq!(first, expected);
    assert!(
        said.text().contains("too-many-open-files"),
        "{}",
        said.text()
    );
    assert!(said.text().contains("5 lines read"), "{}", said.text());
}

#[test]
fn r17_the_document_keeps_its_promises() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("agent.log");
    fs::write(
        &log,
        format!("{SURE}\n512 worker_connections are not enough\n"),
    )
    .unwrap();
    let log = log.to_str().unwrap();
    let said = run(["explain", log, "--json"]);
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let document = said.json();
    assert_eq!(document["schema"], "fdguard.explanation/1");
    assert_eq!(document["log"], log);
    assert_eq!(document["lines_read"], 2);
    assert_eq!(document["verdict"], "descriptors");
    assert_eq!(document["held_by"], Value::Null);
    let found = &document["symptoms"][0];
    for (key, value) in [
        ("id", json!("too-many-open-files")),
        ("wall", json!("soft-limit")),
        ("certainty", json!("certain")),
        ("count", json!(1)),
        ("first_line", json!(1)),
        ("last_line", json!(1)),
        ("example", json!(SURE)),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    assert!(found["meaning"].is_string() && found["next"].is_string());
    let other = &document["not_counted"][0];
    assert_eq!(other["id"], "nginx-worker-connections");
    assert_eq!(
        (&other["wall"], other["why"].is_string()),
        (&json!("none"), true)
    );
}

#[test]
fn r9_another_wall_than_descriptors_is_named() {
    let said = explain(b"RuntimeError: can't start new thread\n", &[]);
    assert_eq!(said.code, 1);
    assert!(
        said.text()
            .starts_with("1 line probably means that processes or threads ran out"),
        "{}",
        said.text()
    );
}

#[test]
fn a_log_without_symptoms_and_an_empty_one_are_told_apart() {
    let quiet = explain(b"max open files: 65536\nall is well\n", &[]);
    assert_eq!(quiet.code, 0);
    assert_eq!(
        quiet.text(),
        "no line reports descriptor exhaustion (2 lines read)\n"
    );
    let empty = explain(b"", &[]);
    assert_eq!(empty.code, 0);
    assert_eq!(empty.text(), "the log is empty\n");
    assert_eq!(
        explain(b"", &["-", "--json"]).good_json()["verdict"],
        "empty"
    );
    let doubtful = explain(DOUBTFUL.as_bytes(), &[]);
    assert_eq!(doubtful.code, 0);
    assert!(
        doubtful
            .text()
            .contains("not counted\n  name-not-resolved: 1 line")
    );
}

#[test]
fn r17_with_a_process_the_holder_and_the_advice_are_named() {
    let mut victim = Victim::start("leaker");
    victim.tell("40 file");
    victim.tell("90 pipe");
    let pid = victim.pid().to_string();
    let said = explain(SURE.as_bytes(), &["-p", &pid]);
    assert_eq!((said.code, &*said.stderr), (1, ""));
    let text = said.text();
    assert!(text.contains(&format!("(pid {pid}): ")), "{text}");
    assert!(text.contains("advice for pipe [child-stdio]"), "{text}");
    assert!(text.contains(&format!("fdguard snap {pid}")), "{text}");
    let document = explain(SURE.as_bytes(), &["--pid", &pid, "--json"]).json();
    let held = &document["held_by"];
    assert_eq!(held["process"]["pid"], victim.pid());
    assert_eq!(held["classes"][0]["class"], "pipe");
    assert_eq!(held["advice"]["id"], "child-stdio");
    assert!(held["count"].as_u64().unwrap() > 130 && held["percent_of_soft"].is_f64());
    victim.finish();
}

#[test]
fn r9_the_advice_follows_the_wall_that_the_log_speaks_of() {
    let victim = Victim::start("everything");
    let pid = victim.pid().to_string();
    for (line, class, advice) in [
        (
            "Error: EMFILE: too many open files, watch '/x'",
            "inotify",
            "watchers",
        ),
        ("OSError: out of pty devices", "pty-master", ""),
    ] {
        let document = explain(line.as_bytes(), &["-p", &pid, "--json"]).json();
        assert_eq!(document["verdict"], "other-wall");
        assert_eq!(document["held_by"]["suspect"], class);
        let id = document["held_by"]["advice"]["id"].as_str().unwrap();
        assert!(id.starts_with(advice), "{id}");
    }
    victim.finish();
}

#[test]
fn r17_a_process_at_its_limit_makes_doubtful_lines_count() {
    let victim = Victim::start("starved");
    let pid = victim.pid().to_string();
    let said = explain(DOUBTFUL.as_bytes(), &["-p", &pid]);
    assert_eq!(said.code, 1, "{}", said.text());
    assert!(
        said.text()
            .starts_with("1 line may mean that descriptors ran out"),
        "{}",
        said.text()
    );
    victim.finish();
}

#[test]
fn a_process_that_may_not_be_read_is_told_so() {
    if !testkit::is_root() {
        return testkit::skip("needs root, to be somebody else");
    }
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let said = AsNobody::new().run(&["explain", "-", "--pid", &pid]);
    assert_eq!(said.code, 3, "{}", said.text());
    assert!(said.text().contains("not seen"), "{}", said.text());
    victim.finish();
}

#[test]
fn what_cannot_be_read_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let packed = dir.path().join("old.log.gz");
    fs::write(&packed, b"\x1f\x8b\x08\x00rest").unwrap();
    let cases = [
        ("/no/such/file.log", "No such file"),
        (dir.path().to_str().unwrap(), "directory"),
        (packed.to_str().unwrap(), "is compressed"),
    ];
    for (log, words) in cases {
        let said = run(["explain", log]);
        assert_eq!(said.code, 3, "{log}: {}", said.stderr);
        assert!(
            said.stdout.is_empty() && said.stderr.contains(words),
            "{}",
            said.stderr
        );
        assert!(said.stderr.contains(log), "{}", said.stderr);
    }
    let said = run(["explain", "-", "--pid", "4194304"]);
    assert_eq!(said.code, 3, "{}", said.stderr);
}

#[test]
fn wrong_words_are_wrong_usage() {
    for args in [
        &["explain", "a", "b"][..],
        &["explain", "--class", "pipes"],
        &["explain", "x.log", "--list"],
        &["explain", "--list", "--class", "pipe"],
        &["explain", "--pid", "0"],
    ] {
        let said = run(args);
        assert_eq!(said.code, 2, "{args:?}");
        assert!(said.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn r5_the_playbook_is_listed_by_class_and_by_word() {
    let all = run(["explain", "--list", "--json"]).good_json();
    assert_eq!(all["schema"], "fdguard.playbook/1");
    assert!(all["advice"].as_array().unwrap().len() > 50);
    assert!(all["symptoms"].as_array().unwrap().len() > 40);
    let pipes = run(["explain", "--class", "pipe", "--json"]).good_json();
    assert_eq!(pipes["advice"][0]["id"], "child-stdio");
    let text = run(["explain", "--class", "other:[landlock]"]);
    assert!(
        text.text().starts_with("kernel-objects  class other:*"),
        "{}",
        text.text()
    );
    assert!(
        run(["explain", "--search", "codex#18881"])
            .text()
            .starts_with("orphan-processes")
    );
    let nothing = run(["explain", "--search", "no such word"]);
    assert_eq!((nothing.code, nothing.text().lines().count()), (0, 1));
}

#[test]
fn r5_a_playbook_of_one_s_own_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("mine.toml");
    let text = "[[advice]]\nid = \"our-pool\"\nclass = \"pipe\"\nsource = \"our pool\"\n\
                confirm = \"ask it\"\nfix = \"close it\"\n\
                [[symptom]]\nid = \"pool-drained\"\npatterns = \"pool drained\"\nwall = \"soft-limit\"\n\
                certainty = \"certain\"\nmeaning = \"m\"\nnext = \"n\"\n";
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let listed = run(["explain", "--class", "pipe", "--playbook", file, "--json"]).good_json();
    assert_eq!(listed["advice"][0]["id"], "our-pool");
    let said = explain(b"agent: pool drained\n", &["--playbook", file, "--json"]);
    assert_eq!(said.json()["symptoms"][0]["id"], "pool-drained");
    fs::write(file, text.replace("source", "sorce")).unwrap();
    let said = run(["explain", "--list", "--playbook", file]);
    assert_eq!(said.code, 2);
    let line = said.stderr.lines().next().unwrap();
    assert!(
        line.contains("line 4, column 1: entry \"our-pool\": unknown field `sorce`"),
        "{line}"
    );
    assert_eq!(run(["explain", "--list", "--playbook", "/no/such"]).code, 3);
}

#[test]
fn hostile_lines_never_reach_the_terminal_raw() {
    let said = explain(b"\x1b[31mEMFILE\x07 \xff\xfe\r\n", &[]);
    assert_eq!(said.code, 1);
    let raw = said
        .stdout
        .iter()
        .any(|byte| byte.is_ascii_control() && *byte != b'\n');
    assert!(!raw, "{:?}", said.text());
    assert!(
        said.text().contains("\\u{1b}[31mEMFILE\\u{7} \\xff\\xfe"),
        "{}",
        said.text()
    );
    let json = explain(b"EMFILE \xff\n", &["--json"]).json();
    assert!(json["symptoms"][0]["example"]["bytes"].is_string());
}

#[test]
fn a_result_may_go_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("said.json");
    let said = explain(SURE.as_bytes(), &["--json", "-o", path.to_str().unwrap()]);
    assert_eq!((said.code, said.stdout.len()), (1, 0));
    let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(document["verdict"], "descriptors");
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let mut command = fdguard();
    command.args(["explain", "--list"]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    let status = child.wait().unwrap();
    assert_eq!((status.code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn a_line_without_end_takes_no_memory() {
    // 32 MB in one line, and a line after it.
    let mut log = vec![b'x'; 32 << 20];
    log.extend_from_slice(b"\nEMFILE\n");
    let document = explain(&log, &["--json"]).json();
    assert_eq!(document["lines_read"], 2);
    assert_eq!(document["symptoms"][0]["first_line"], 2);
}

#[test]
fn nobody_is_left_waiting_at_a_terminal() {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    let open = || rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
    let said = CommandOutput::of(fdguard().arg("explain").stdin(open()).output().unwrap());
    assert_eq!((said.code, said.stdout.len()), (2, 0));
    assert!(said.stderr.contains("no log given"), "{}", said.stderr);
    // With a process there is output even without a log.
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let args = ["explain", "-p", &pid];
    let said = CommandOutput::of(fdguard().args(args).stdin(open()).output().unwrap());
    assert_eq!((said.code, &*said.stderr), (0, ""));
    assert!(said.text().contains("open in"), "{}", said.text());
    victim.finish();
}

#[test]
fn an_interrupt_ends_it_without_a_word() {
    let mut command = fdguard();
    command.arg("explain").stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // More than a pipe holds: once it is written, the command is reading.
    stdin.write_all(&vec![b'\n'; 1 << 20]).unwrap();
    let pid = Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()));
    assert!(output.stdout.is_empty() && output.stderr.is_empty());
}
