//! `fdguard why --force`: large heaps of Java and Node are refused without it, and a JVM's expected
//! stop is printed before it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use testkit::{have, is_root, runtimes, skip};

use super::run;
use super::why::started;

/// Holds a file, and 60 MB in an array.
const JAVA: &str = r#"
public class Large {
    static long[] kept = new long[60 << 17];
    static java.io.FileInputStream file;
    public static void main(String[] arguments) throws Exception {
        file = new java.io.FileInputStream("/proc/self/stat");
        System.out.println("READY");
        while (System.in.read() >= 0) {}
    }
}
"#;

/// The same for Node: one large array, so that a walk is quick.
const NODE: &str = "
const fs = require('fs');
const kept = new Array(60 << 17).fill(1.5);
fs.promises.open('/proc/self/stat').then((handle) => {
  globalThis.handle = handle;
  console.log('READY');
  process.stdin.on('end', () => process.exit(kept.length > 0 ? 0 : 1)).resume();
});
";

/// What a command prints, in its order, and how it ended.
fn printed(arguments: &[&str]) -> (String, Option<i32>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let append = || {
        let file = std::fs::OpenOptions::new().append(true).open(file.path());
        Stdio::from(file.unwrap())
    };
    let status = Command::new(env!("CARGO_BIN_EXE_fdguard"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(append())
        .stderr(append())
        .status()
        .unwrap();
    (std::fs::read_to_string(file.path()).unwrap(), status.code())
}

/// The class in a directory; `None` if there is no compiler.
fn compile(dir: &Path) -> Option<PathBuf> {
    if !have("javac") {
        skip("no javac");
        return None;
    }
    let source = dir.join("Large.java");
    std::fs::write(&source, JAVA).unwrap();
    let mut javac = Command::new("javac");
    let done = javac.args(["--release", "11", "-d"]).arg(dir).arg(source);
    assert!(done.status().unwrap().success());
    Some(dir.to_owned())
}

#[test]
fn w22_a_large_java_heap_is_refused_and_forced_after_its_stop_was_printed() {
    if !is_root() {
        return skip("needs root");
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(classes) = compile(dir.path()) else {
        return;
    };
    for java in runtimes("java", &[17]) {
        let mut command = Command::new(&java.path);
        command.args(["-Xmx256m", "-XX:+UseSerialGC", "-cp"]);
        let (mut program, _) = started(command.arg(&classes).arg("Large"));
        let pid = program.id().to_string();
        let refused = run(["why", &pid]);
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert_eq!(refused.text(), "");
        let stop = "a walk stops the program for up to ";
        assert!(refused.stderr.contains(stop), "{}", refused.stderr);
        let way = format!("run fdguard why {pid} --force");
        assert!(refused.stderr.contains(&way), "{}", refused.stderr);
        let (text, code) = printed(&["why", &pid, "--force"]);
        assert_eq!(code, Some(0), "{text}");
        let announced = text.find(stop).unwrap_or(usize::MAX);
        let answered = text.find("held by FileInputStream ← Large.file [object]");
        assert!(answered.is_some_and(|at| announced < at), "{text}");
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
    }
}

#[test]
fn w22_a_large_node_heap_is_refused_unless_it_is_forced() {
    if !is_root() {
        return skip("needs root");
    }
    for node in runtimes("node", &[22]) {
        // Tests run side by side, and Node has one port for its inspector.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let mut command = Command::new(&node.path);
        command.arg(format!("--inspect-port={port}"));
        command.args(["-e", NODE]).env_remove("NODE_OPTIONS");
        let (mut program, _) = started(&mut command);
        let pid = program.id().to_string();
        let refused = run(["why", &pid]);
        assert_eq!(refused.code, 3, "{}", refused.stderr);
        assert_eq!(refused.text(), "");
        let reason = "of heap are in use, and a copy of the program would take 12 times as much";
        assert!(refused.stderr.contains(reason), "{}", refused.stderr);
        let way = format!("run fdguard why {pid} --force");
        assert!(refused.stderr.contains(&way), "{}", refused.stderr);
        let forced = run(["why", &pid, "--force"]);
        assert_eq!(forced.code, 0, "{}", forced.stderr);
        let holder = "held by FileHandle ← globalThis.handle [object]";
        assert!(forced.text().contains(holder), "{}", forced.text());
        drop(program.stdin.take());
        assert!(program.wait().unwrap().success());
    }
}
