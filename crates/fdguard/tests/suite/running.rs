//! A supervisor under test: its events are awaited, never the clock.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::fdguard;

/// The service of the tests.
pub(crate) fn service() -> String {
    let path: Option<PathBuf> = testkit::c_variant("service", "O1", &["-O1"]);
    path.expect("a victim that compiles").display().to_string()
}

/// A free port.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A running `fdguard run`. Drop kills it, and its services end with it.
pub(crate) struct Running {
    child: Child,
    events: BufReader<ChildStderr>,
    output: BufReader<ChildStdout>,
    /// Every event line so far.
    pub(crate) seen: Vec<String>,
}

/// An event line.
pub(crate) struct EventLine(pub(crate) String);

impl EventLine {
    /// The value of a key that needs no quotes.
    pub(crate) fn value(&self, key: &str) -> &str {
        let start = format!("{key}=");
        let word = self.0.split(' ').find_map(|word| word.strip_prefix(&start));
        word.unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    pub(crate) fn number(&self, key: &str) -> u32 {
        self.value(key).parse().unwrap()
    }
}

impl Running {
    /// With these arguments after `run`.
    pub(crate) fn start<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Self {
        let mut command = fdguard();
        command.arg("run").args(args);
        Self::of(command)
    }

    /// This command, which becomes `fdguard run`.
    pub(crate) fn of(mut command: Command) -> Self {
        if !command.get_envs().any(|(name, _)| name == "XDG_STATE_HOME") {
            // Keep unrequested evidence in the target directory.
            command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
        }
        command
            .env_remove("FDGUARD_RUN")
            .env_remove("NOTIFY_SOCKET_X");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            events: BufReader::new(child.stderr.take().unwrap()),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            seen: Vec::new(),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process of its latest start.
    pub(crate) fn main(&mut self) -> u32 {
        self.signal(Signal::QUIT);
        self.event("state", &["state=ready"]).number("pid")
    }

    /// The next event of this name that contains all of these words.
    pub(crate) fn event(&mut self, name: &str, words: &[&str]) -> EventLine {
        let start = format!("fdguard_event event={name}");
        loop {
            let mut line = String::new();
            let length = self.events.read_line(&mut line).unwrap();
            assert!(length > 0, "no {name} {words:?} among {:#?}", self.seen);
            let line = line.trim_end().to_owned();
            self.seen.push(line.clone());
            let is_it = line == start || line.starts_with(&format!("{start} "));
            if is_it && words.iter().all(|word| line.contains(word)) {
                return EventLine(line);
            }
        }
    }

    /// The next line of a service's output that begins like this; returns the rest.
    pub(crate) fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line).unwrap();
            assert!(length > 0, "no line {start:?}; events: {:#?}", self.seen);
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; returns its status and its last event.
    pub(crate) fn ended(&mut self) -> (i32, EventLine) {
        let last = self.event("stopped", &[]);
        (self.child.wait().unwrap().code().unwrap(), last)
    }

    /// Stops it and waits.
    pub(crate) fn stop(&mut self) -> (i32, EventLine) {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end without reading the output.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }

    /// Its own descriptors once it has looked at its service: the start is over, and its reserve is
    /// held again.
    pub(crate) fn at_rest(&mut self) -> usize {
        loop {
            self.signal(Signal::QUIT);
            let told = self.event("state", &["state=ready"]);
            if told.0.contains(" fds=")
                && let Some(count) = self.asleep()
            {
                return count;
            }
        }
    }

    /// Its descriptor count while it waits: a look at its service needs some for a moment.
    fn asleep(&self) -> Option<usize> {
        let switches = || {
            let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
            let is_asleep = text.lines().any(|line| line.starts_with("State:\tS"));
            let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
            is_asleep.then(|| lines.map(str::to_owned).collect::<Vec<_>>())
        };
        let before = switches()?;
        let count = self.descriptors();
        (switches()? == before).then_some(count)
    }

    /// Its own open descriptors.
    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Gone already, mostly.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends a signal to a process that a test knows.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Waits until this process is gone, whichever process reaps it.
pub(crate) fn await_end(pid: u32) {
    let raw = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else {
        return;
    };
    let mut fds = [rustix::event::PollFd::new(
        &handle,
        rustix::event::PollFlags::IN,
    )];
    // A stuck test is ended by nextest.
    rustix::event::poll(&mut fds, None).unwrap();
}

/// Whether a process runs: not gone and no zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The answer of an HTTP server.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
