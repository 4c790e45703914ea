//! The victim: it waits in one way, and prints what came of it.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fdguard_attach::{Error, RemoteCall, Target};

/// A running `borrowed`.
pub(crate) struct Borrowed {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

/// What it printed at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) result: i64,
    pub(crate) errno: i32,
    pub(crate) milliseconds: u64,
}

impl Answer {
    /// What must be the same with and without a call.
    pub(crate) fn outcome(&self) -> (i64, i32) {
        (self.result, self.errno)
    }
}

pub(crate) fn program() -> PathBuf {
    testkit::c_variant("borrowed", "c", &["-g", "-O1", "-Wl,--no-as-needed", "-lm"]).unwrap()
}

/// The bytes of the library that is loaded into victims.
pub(crate) fn library() -> Vec<u8> {
    fs::read(library_path()).unwrap()
}

pub(crate) fn library_path() -> PathBuf {
    testkit::c_variant("entered", "so", &["-g", "-shared", "-fPIC"]).unwrap()
}

impl Borrowed {
    pub(crate) fn start(kind: &str) -> Self {
        Self::of(Command::new(program()).arg(kind))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut victim = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        assert_eq!(victim.line(), "READY");
        victim
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits until its first thread sleeps in a system call.
    pub(crate) fn wait_until_it_waits(&self) {
        wait_until_it_waits(self.pid());
    }

    pub(crate) fn call(&self, entry: &std::ffi::CStr) -> Result<RemoteCall, Error> {
        Target::examine(self.pid())?.call(&library(), entry, b"abc")
    }

    /// Calls `count`, which must work.
    pub(crate) fn count(&self) -> i32 {
        self.call(c"count").unwrap().returned
    }

    /// Lets happen what it waits for, and returns what it says. It must end well.
    pub(crate) fn finish(mut self) -> Answer {
        // One that has ended already does not listen.
        drop(writeln!(self.stdin.as_mut().unwrap(), "go"));
        self.answer()
    }

    /// What it says by itself.
    pub(crate) fn answer(&mut self) -> Answer {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "it ended with {status}: {line}");
        Answer {
            result: words[1].parse().unwrap(),
            errno: words[2].parse().unwrap(),
            milliseconds: words[3].parse().unwrap(),
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The regions that belong to no file, with code.
    pub(crate) fn scratch_pages(&self) -> usize {
        self.try_scratch_pages().unwrap()
    }

    /// The same for one that may have ended.
    pub(crate) fn try_scratch_pages(&self) -> std::io::Result<usize> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid()))?;
        let pages = maps
            .lines()
            .filter(|line| line.contains("r-xp") && line.trim_end().ends_with(" 0"));
        Ok(pages.count())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        // Its helper ends when nobody can write a line any more, and closes the output.
        drop(self.stdin.take());
        drop(self.stdout.read_to_end(&mut Vec::new()));
    }
}

pub(crate) fn wait_until_it_waits(pid: u32) {
    testkit::wait_until("the program waits", || {
        let syscall = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
        !syscall.starts_with("running")
    });
}

/// The program that enters once.
pub(crate) fn enter(pid: u32) -> Command {
    let test = std::env::current_exe().unwrap();
    let dir = test.parent().and_then(Path::parent).unwrap();
    let mut command = Command::new(dir.join("examples/enter"));
    command
        .arg(pid.to_string())
        .arg(library_path())
        .arg("count");
    command
}
