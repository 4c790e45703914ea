//! A program that runs under `fdguard trace` for as long as its test wants.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::{CommandOutput, fdguard};

/// The tracer and its program's output.
pub(crate) struct Tracing {
    pub(crate) tracer: Child,
    input: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    dir: TempDir,
}

impl Tracing {
    /// Starts the program; the report goes to a file.
    pub(crate) fn start(arguments: &[&str], words: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut command = fdguard();
        command.arg("trace").args(arguments);
        command.arg("-o").arg(dir.path().join("report"));
        Self::of(command.arg("--").args(words), dir)
    }

    /// The same with its report on stderr.
    pub(crate) fn to_stderr(arguments: &[&str], words: &[&str]) -> Self {
        let mut command = fdguard();
        command.arg("trace").args(arguments).arg("--").args(words);
        Self::of(&mut command, tempfile::tempdir().unwrap())
    }

    fn of(command: &mut Command, dir: TempDir) -> Self {
        let mut tracer = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: tracer.stdin.take(),
            lines: BufReader::new(tracer.stdout.take().unwrap()),
            tracer,
            dir,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.tracer.id()
    }

    /// The next line that the program prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Sends a line to the program.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits until one of these is in the file of the report.
    pub(crate) fn wait_in_file(&self, text: &str, other: &str) {
        let file = self.dir.path().join("report");
        loop {
            let written = std::fs::read_to_string(&file).unwrap_or_default();
            if written.contains(text) || written.matches(other).count() > 1 {
                return;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.tracer), signal).unwrap();
    }

    /// Closes the program's input, and waits for the tracer to end; also returns the report.
    pub(crate) fn end(mut self) -> (CommandOutput, String) {
        drop(self.input.take());
        let output = self.tracer.wait_with_output().unwrap();
        let report = std::fs::read_to_string(self.dir.path().join("report"));
        (CommandOutput::of(output), report.unwrap_or_default())
    }
}

/// The line with a mark in a source in the directory `c`.
pub(crate) fn line_of(file: &str, mark: &str) -> usize {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testkit/c")
        .join(file);
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|line| line.contains(mark)).unwrap() + 1
}
