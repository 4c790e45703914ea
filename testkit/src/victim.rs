//! Starts a victim, reads what it holds, sends it orders, and ends it.

use std::ffi::{CString, OsString};
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{VictimHolding, c_victim, launch, sys, victim_path};

/// A namespace to start a victim in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// Its own network: no address, no other sockets.
    Net,
    /// Its own pid namespace: the victim has pid 1, reports that, and also uses it in what it holds
    /// (peers, process handles); [`Victim::pid`] is the outer pid.
    Pid,
    /// Its own mounts.
    Mount,
}

/// How a victim is to be started.
#[derive(Debug)]
pub struct VictimLaunch {
    program: PathBuf,
    args: Vec<OsString>,
    uid: Option<u32>,
    nofile: Option<u64>,
    namespaces: Vec<Namespace>,
}

impl VictimLaunch {
    /// Any program that keeps to the protocol.
    #[must_use]
    pub fn program(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            uid: None,
            nofile: None,
            namespaces: Vec::new(),
        }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Runs it as this user and group. Needs root.
    #[must_use]
    pub fn as_user(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Lowers its soft limit on descriptors.
    #[must_use]
    pub fn nofile(mut self, soft: u64) -> Self {
        self.nofile = Some(soft);
        self
    }

    /// Puts it into a new namespace. Needs root and the program `unshare`.
    #[must_use]
    pub fn in_new(mut self, namespace: Namespace) -> Self {
        self.namespaces.push(namespace);
        self
    }

    /// Starts it and waits for its line.
    #[must_use]
    pub fn start(self) -> Victim {
        let dir = tempfile::tempdir().expect("folder for the victim");
        let mut command = self.command(dir.path());
        command
            .args(&self.args)
            .env("TMPDIR", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        launch::start_clean(&mut command);
        if let Some(soft) = self.nofile {
            launch::limit_files(&mut command, soft);
        }
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let mut victim = Victim {
            pid: child.id(),
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().expect("standard output is a pipe")),
            child,
            line: Value::Null,
            holdings: Vec::new(),
            dir,
        };
        victim.line = victim.hear();
        victim.holdings =
            serde_json::from_value(victim.line["holdings"].clone()).expect("list of holdings");
        if self.namespaces.contains(&Namespace::Pid) {
            victim.pid = only_child(victim.pid);
        }
        victim
    }

    /// The command, with program and directory made accessible to another user.
    fn command(&self, dir: &Path) -> Command {
        let Some(uid) = self.uid else {
            return self.wrapped(&self.program);
        };
        // That user may have no access to the build directory. By `cp`: if this process had the
        // copy open for writing while another thread forks, exec would fail.
        let copy = dir.join("victim");
        let copied = Command::new("cp").arg(&self.program).arg(&copy).status();
        assert!(copied.expect("cp").success(), "copying the victim");
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).expect("permissions");
        chown(dir, Some(uid), Some(uid)).expect("giving the folder away, which needs root");
        if self.namespaces.is_empty() {
            launch::run_as(uid, Command::new(copy))
        } else {
            self.wrapped(&copy)
        }
    }

    fn wrapped(&self, program: &Path) -> Command {
        if self.namespaces.is_empty() {
            return Command::new(program);
        }
        let mut command = Command::new("unshare");
        for namespace in &self.namespaces {
            command.args(match namespace {
                Namespace::Net => &["--net"][..],
                Namespace::Mount => &["--mount"],
                Namespace::Pid => &["--pid", "--fork", "--kill-child", "--mount-proc"],
            });
        }
        if let Some(uid) = self.uid {
            command.arg(format!("--setuid={uid}"));
            command.arg(format!("--setgid={uid}"));
        }
        command.arg("--").arg(program);
        command
    }
}

/// A running victim. Drop kills it; [`Victim::finish`] ends it properly.
#[derive(Debug)]
pub struct Victim {
    child: Child,
    pid: u32,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    line: Value,
    holdings: Vec<VictimHolding>,
    dir: TempDir,
}

impl Victim {
    /// A victim of this name, to be started with options.
    #[must_use]
    pub fn of(name: &str) -> VictimLaunch {
        VictimLaunch::program(&victim_path(name))
    }

    /// A victim of this name written in C, to be started with options.
    #[must_use]
    pub fn of_c(name: &str) -> VictimLaunch {
        VictimLaunch::program(&c_victim(name))
    }

    /// Starts the victim of this name.
    #[must_use]
    pub fn start(name: &str) -> Self {
        Self::of(name).start()
    }

    /// Its pid, as seen from here.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it reported to hold when it was ready.
    #[must_use]
    pub fn holdings(&self) -> &[VictimHolding] {
        &self.holdings
    }

    /// Its holding of this description.
    #[must_use]
    pub fn holding(&self, what: &str) -> Option<&VictimHolding> {
        self.holdings.iter().find(|holding| holding.what == what)
    }

    /// The whole line it printed when it was ready.
    #[must_use]
    pub fn line(&self) -> &Value {
        &self.line
    }

    /// The directory in which it makes its files; removed with this value.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends it a line and waits for its answer.
    pub fn tell(&mut self, line: &str) -> Value {
        self.send(line);
        self.hear()
    }

    /// Sends it a line that it does not answer.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        writeln!(stdin, "{line}").expect("the victim listens");
    }

    /// The numbers that `/proc` lists for it, sorted.
    #[must_use]
    pub fn listed(&self) -> Vec<u32> {
        listed(self.pid)
    }

    /// Waits until it has ended by itself, and returns whether it succeeded.
    #[must_use]
    pub fn ended_well(&mut self) -> bool {
        self.child.wait().expect("waiting for the victim").success()
    }

    /// Ends its standard input and waits; it must exit with 0.
    pub fn finish(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().expect("waiting for the victim");
        assert!(status.success(), "the victim ended with {status}");
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).expect("reading its line");
        if length == 0 {
            let status = self.child.wait().expect("waiting for the victim");
            panic!("the victim said nothing and ended with {status}");
        }
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON: {error}: {line}"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // After finish() both do nothing: the child was already reaped.
        drop(self.child.kill());
        drop(self.child.wait());
        // A killed victim cannot remove its message queue, and the kernel keeps it until reboot: a
        // few of them exhaust the user's limit.
        if let Ok(name) = CString::new(format!("/fdguard-victim-{}", self.line["pid"])) {
            drop(sys::remove_message_queue(&name));
        }
    }
}

/// The numbers that `/proc` lists for a process, sorted.
#[must_use]
pub fn listed(pid: u32) -> Vec<u32> {
    let listing = fs::read_dir(format!("/proc/{pid}/fd")).expect("the victim's table");
    let mut numbers: Vec<u32> = listing
        .map(|entry| entry.expect("entry of the table").file_name())
        .map(|name| name.to_str().and_then(|name| name.parse().ok()))
        .map(|number| number.expect("a number"))
        .collect();
    numbers.sort_unstable();
    numbers
}

fn only_child(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("children of unshare");
    children.trim().parse().expect("exactly one child")
}
