//! A running `fdguard watch`, read line by line.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::Victim;

use super::{CommandOutput, fdguard};

/// Looks often enough for a test.
pub(crate) const EVERY: [&str; 2] = ["--every", "10ms"];

/// The watch, and its output so far.
pub(crate) struct Watching {
    child: Child,
    stdout: BufReader<ChildStdout>,
    said: String,
}

impl Watching {
    /// `fdguard watch` with these arguments, looking often.
    pub(crate) fn start<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        let mut command = fdguard();
        // Only the test's settings apply.
        command.arg("watch").args(EVERY).args(args).current_dir("/");
        Self::of(command)
    }

    /// Of one process.
    pub(crate) fn over(victim: &Victim, args: &[&str]) -> Self {
        let pid = victim.pid().to_string();
        Self::start([&*pid].iter().chain(args))
    }

    /// Any command that watches.
    pub(crate) fn of(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            said: String::new(),
        }
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line, which means one more look.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).unwrap();
        assert!(length > 0, "it ended after {:?}", self.said);
        self.said.push_str(&line);
        line.trim_end().to_owned()
    }

    /// Waits for a line that has this in it.
    pub(crate) fn wait_for(&mut self, part: &str) -> String {
        loop {
            let line = self.line();
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Leaks `amount` of a kind at every one of `looks` looks.
    pub(crate) fn leak(&mut self, victim: &mut Victim, order: &str, looks: usize) {
        for _ in 0..looks {
            self.line();
            // Looks that were made while this test did not run: two leaks have one between them.
            while !self.stdout.buffer().is_empty()
                || ioctl_fionread(self.stdout.get_ref()).unwrap() > 0
            {
                self.line();
            }
            victim.tell(order);
        }
    }

    /// Waits for looks that find nothing new.
    pub(crate) fn idle(&mut self, looks: usize) {
        for _ in 0..looks {
            self.line();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it as Ctrl-C does, and reads the rest.
    pub(crate) fn stop(self) -> CommandOutput {
        self.signal(Signal::INT);
        self.end()
    }

    /// Waits until it ends by itself, and reads the rest.
    pub(crate) fn end(mut self) -> CommandOutput {
        self.stdout.read_to_string(&mut self.said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        CommandOutput {
            code: output.status.code().expect("ended by itself"),
            stdout: self.said.into_bytes(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The diagnosis: the last line.
pub(crate) fn diagnosis(said: &CommandOutput) -> Value {
    let last = said.text().lines().last().unwrap_or_default();
    let document = serde_json::from_str(last).unwrap_or_else(|error| {
        panic!("{error}: {last}; {}", said.stderr);
    });
    super::diagnosis::assert_diagnosis(&document);
    document
}

/// The value of a key in a line of keys and values.
pub(crate) fn value<'a>(line: &'a str, key: &str) -> &'a str {
    let mut pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(name, _)| *name == key);
    found.unwrap_or_else(|| panic!("{key} in {line}")).1
}
