//! A program that runs by itself, and an `fdguard` that attaches to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal};
use serde_json::Value;
use tempfile::TempDir;

use super::fdguard;

/// The program of `runner.c`. Drop kills it.
pub(crate) struct Runner {
    child: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    pub(crate) pid: u32,
}

/// The program's file.
pub(crate) fn runner() -> PathBuf {
    let flags = ["-O2", "-g", "-fomit-frame-pointer"];
    testkit::c_variant("runner", "O2", &flags).expect("a victim that compiles")
}

impl Runner {
    /// Starts it and waits until it is ready.
    pub(crate) fn start() -> Self {
        Self::of(&mut Command::new(runner()))
    }

    /// The same by another command, which becomes it.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut runner = Self {
            input: child.stdin.take(),
            lines: BufReader::new(child.stdout.take().unwrap()),
            pid: child.id(),
            child,
        };
        let ready = runner.line();
        assert!(ready.starts_with("READY "), "{ready}");
        runner
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Gives an order and returns the answer.
    pub(crate) fn say(&mut self, order: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
        self.line()
    }

    /// Ends it, and checks that it did all that it would have done by itself.
    pub(crate) fn end(mut self) {
        drop(self.input.take());
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!((&*rest, status.code()), ("DONE\n", Some(7)), "{status}");
        assert_eq!(status.signal(), None);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A running `fdguard` that attaches. Drop kills it.
pub(crate) struct Attaching {
    child: Child,
    errors: BufReader<ChildStderr>,
    /// What it has written to stderr so far.
    pub(crate) said: String,
    dir: TempDir,
}

impl Attaching {
    /// With these words; the JSON report goes to a file.
    pub(crate) fn start(words: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = fdguard();
        command
            .args(words)
            .arg("--json")
            .arg("-o")
            .arg(dir.path().join("report"));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            errors: BufReader::new(child.stderr.take().unwrap()),
            child,
            said: String::new(),
            dir,
        }
    }

    /// Traces these, and waits until the first is attached to.
    pub(crate) fn trace(words: &[&str]) -> Self {
        let all: Vec<&str> = ["trace", "--every", "20ms"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let mut attaching = Self::start(&all);
        attaching.wait_for("attached to ");
        attaching
    }

    /// Waits for a line of stderr with this text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        loop {
            let mut line = String::new();
            let length = self.errors.read_line(&mut line).unwrap();
            self.said.push_str(&line);
            assert!(length > 0, "no {text:?}: {}", self.said);
            if line.contains(text) {
                return;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as Ctrl-C does.
    pub(crate) fn interrupt(self) -> AttachOutcome {
        self.signal(Signal::INT);
        self.end()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> AttachOutcome {
        self.errors.read_to_string(&mut self.said).unwrap();
        let status = self.child.wait().unwrap();
        let report = std::fs::read(self.dir.path().join("report")).unwrap_or_default();
        AttachOutcome {
            code: status.code(),
            said: std::mem::take(&mut self.said),
            found: serde_json::from_slice(&report).unwrap_or_default(),
        }
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct AttachOutcome {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) found: Value,
}

impl AttachOutcome {
    /// The site at a marked line of the program.
    pub(crate) fn site(&self, mark: &str) -> &Value {
        let line = super::tracing::line_of("runner.c", mark);
        let sites = self.found["sites"].as_array();
        let mut sites = sites.into_iter().flatten();
        let site = sites.find(|site| site["culprit"]["line"] == line);
        site.unwrap_or_else(|| panic!("no site at {mark}: {self:?}"))
    }
}

/// Whether a process has nothing of fdguard left that does anything: no file of a trace is mapped.
pub(crate) fn is_left(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    !maps.contains("fdguard-trace-")
}

/// Directories of traces of this process that still exist.
pub(crate) fn trace_dirs(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("fdguard-trace-{pid}-");
    let all = ["/dev/shm", "/tmp", "/var/tmp"].map(Path::new);
    let entries = all.iter().flat_map(std::fs::read_dir).flatten().flatten();
    let named = entries.filter(|one| one.file_name().to_string_lossy().starts_with(&prefix));
    named.map(|one| one.path()).collect()
}
