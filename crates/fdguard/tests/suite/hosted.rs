//! A real `fdguard host` for tests, a raw client, and what the host holds.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{fdguard, snap};

/// Longer than anything takes on a loaded machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);
/// How long an answer may take on a machine under load.
const PATIENCE: Duration = Duration::from_secs(90);

/// As the last argument of a host: Python sessions come from a warm interpreter.
pub(crate) const WARM: &str = "warm";

/// A running host. Drop kills it, and its sessions end with it.
pub(crate) struct Hosted {
    pub(crate) child: Child,
    /// The address in its ready line: `http://…` or `unix:…`.
    pub(crate) at: String,
    pub(crate) token: PathBuf,
    pub(crate) dir: tempfile::TempDir,
}

impl Hosted {
    pub(crate) fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, args)
    }

    /// Listens at a unix socket in its own directory.
    pub(crate) fn on_socket(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", dir.path().join("host.sock").display());
        let args = [&["--listen", &listen], args].concat();
        Self::start_in(dir, &args)
    }

    fn start_in(dir: tempfile::TempDir, args: &[&str]) -> Self {
        let token = dir.path().join("token");
        let mut command = fdguard();
        command.args(["host", "--log-format", "json"]);
        match args.strip_suffix(&[WARM]) {
            Some(args) => command.args(args),
            None => command.arg("--no-warm").args(args),
        };
        command.env(MARK, dir.path());
        if !args.contains(&"--no-token") {
            command.arg("--token-file").arg(&token);
        }
        if !testkit::is_root() {
            // These tests examine the host.
            command.arg("--inspectable");
        }
        Self::of(command, dir, token)
    }

    pub(crate) fn of(mut command: Command, dir: tempfile::TempDir, token: PathBuf) -> Self {
        command.env_remove("FDGUARD_HOST_TOKEN");
        let events = fs::File::create(dir.path().join("events")).unwrap();
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(events)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("fdguard host listens at ");
        let at = at.unwrap_or_else(|| {
            panic!(
                "{line:?}: {}",
                fs::read_to_string(dir.path().join("events")).unwrap()
            )
        });
        Self {
            at: at.to_owned(),
            child,
            token,
            dir,
        }
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("events")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// A request and its answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.try_ask(method, path, body);
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}: {:?}", self.events()))
    }

    /// The same, if the connection may break.
    pub(crate) fn try_ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, Value)> {
        let mut stream = self.try_connect()?;
        stream.write_all(self.request(method, path, body).as_bytes())?;
        read_answer(stream)
    }

    /// The bytes of a request with the token, on a connection that ends with it.
    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> String {
        let token = fs::read_to_string(&self.token).unwrap_or_default();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            token.trim(),
            body.len()
        )
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str) -> Box<dyn Stream> {
        let mut stream = self.connect();
        let request = self.request(method, path, body);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub(crate) fn connect(&self) -> Box<dyn Stream> {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> io::Result<Box<dyn Stream>> {
        if let Some(path) = self.at.strip_prefix("unix:") {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            return Ok(Box::new(stream));
        }
        let stream = TcpStream::connect(self.at.strip_prefix("http://").unwrap())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Box::new(stream))
    }

    /// Living processes of it, the host itself left out.
    pub(crate) fn others(&self) -> Vec<u32> {
        let mut all = marked(self.dir.path().to_str().unwrap());
        all.retain(|pid| *pid != self.pid());
        all
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Opens a session and returns its description.
    pub(crate) fn open(&self, body: &Value) -> Value {
        let (status, session) = self.ask_to_open(body);
        assert_eq!(status, 201, "{body}: {session}");
        session
    }

    /// Asks for a session that may take long to start.
    pub(crate) fn ask_to_open(&self, body: &Value) -> (u16, Value) {
        let mut body = body.clone();
        body["ready_within_ms"] = json!(20_000);
        self.ask("POST", "/v1/sessions", &body.to_string())
    }

    /// Runs a command with this time limit.
    pub(crate) fn exec(&self, id: &str, code: &str, timeout: Duration) -> (u16, Value) {
        let body = json!({"code": code, "timeout_ms": timeout.as_millis()});
        self.ask(
            "POST",
            &format!("/v1/sessions/{id}/exec"),
            &body.to_string(),
        )
    }

    /// Closes a session and returns its receipt.
    pub(crate) fn close(&self, id: &str) -> Value {
        let (status, receipt) = self.ask("DELETE", &format!("/v1/sessions/{id}"), "");
        assert_eq!(status, 200, "{receipt}");
        receipt
    }

    /// The warm interpreter starts in the background; its sessions have keepers that are not the
    /// host's children.
    pub(crate) fn wait_until_warm(&self) {
        let mut closed = 0;
        eventually("sessions are warm", LONG, || {
            let session = self.open(&json!({"program": "python"}));
            closed = u32::try_from(session["pid"].as_u64().unwrap()).unwrap();
            let keeper = parent_of(closed);
            self.close(session["id"].as_str().unwrap());
            keeper.and_then(parent_of) != Some(self.pid())
        });
        // The interpreter and its keeper, and the session forked ahead, whose own keeper has no
        // environment and so no mark. For a moment the third may be the session that was closed, or
        // that keeper before its exec.
        let is_ahead = |pid: u32| {
            let keeper = parent_of(pid).map(|keeper| format!("/proc/{keeper}/cmdline"));
            let words = keeper.and_then(|path| fs::read(path).ok());
            words.is_some_and(|words| words.ends_with(format!("main={pid}\0").as_bytes()))
        };
        eventually("the next session is forked", LONG, || {
            let others = self.others();
            others.len() == 3 && others.iter().any(|pid| *pid != closed && is_ahead(*pid))
        });
    }

    /// The state that must be the same before and after any number of sessions.
    pub(crate) fn baseline(&self) -> Baseline {
        let seen = snap(self.pid(), &["--json", "--fds"]).good_json();
        Baseline::of(&seen)
    }

    /// The same, after the blocking threads of the start have ended: their keep-alive is one
    /// second.
    pub(crate) fn settled_baseline(&self) -> Baseline {
        eventually("blocking threads are gone", LONG, || {
            // The first thread and the runtime's two workers.
            self.baseline().threads <= 3
        });
        self.baseline()
    }

    /// Waits until everything is as before; idle blocking threads last one second.
    pub(crate) fn assert_back_at(&self, before: &Baseline) {
        let deadline = Instant::now() + LONG;
        testkit::wait_until("the host is as before", || {
            let now = self.baseline();
            assert!(
                now == *before || Instant::now() < deadline,
                "before: {before:#?}\nnow: {now:#?}\n{:?}",
                self.ask("GET", "/v1/health", "")
            );
            now == *before
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + LONG;
        testkit::wait_for("the host ends", || {
            let status = self.child.try_wait().unwrap();
            assert!(
                status.is_some() || Instant::now() < deadline,
                "it does not end: {:?}",
                self.events()
            );
            status
        })
        .code()
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A connection of either kind.
pub(crate) trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// Reads an answer to its end.
pub(crate) fn read_answer(mut stream: impl Read) -> io::Result<(u16, Value)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let bad = || io::Error::new(io::ErrorKind::InvalidData, format!("{answer:?}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = serde_json::from_str(body).unwrap_or(Value::Null);
    Ok((status.ok_or_else(bad)?, body))
}

/// What the host holds, according to fdguard's probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Baseline {
    /// Each descriptor by its number, with its description.
    descriptors: BTreeMap<u64, String>,
    children: Vec<u32>,
    zombies: u64,
    threads: u64,
}

impl Baseline {
    fn of(seen: &Value) -> Self {
        let process = &seen["process"];
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{seen}"));
        let descriptors = seen["fds"].as_array().unwrap().iter();
        let describe = |fd: &Value| {
            (
                number(&fd["fd"]),
                format!("{} {}", fd["class"], fd["target"]),
            )
        };
        let pid = u32::try_from(number(&process["pid"])).unwrap();
        Self {
            descriptors: descriptors.map(describe).collect(),
            children: children(pid),
            zombies: number(&process["zombies"]),
            threads: number(&process["threads"]),
        }
    }
}

/// The parent and the state of a process, if it is there.
fn parent(pid: u32) -> Option<(u32, char)> {
    fdguard_proc::process::stat(pid, |stat| (stat.ppid, char::from(stat.state))).ok()
}

/// The number of the parent.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    parent(pid).map(|(parent, _)| parent)
}

/// All processes.
fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The children of a process, zombies too.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let mut found: Vec<u32> = pids().filter(|pid| parent_of(*pid) == Some(of)).collect();
    found.sort_unstable();
    found
}

/// Whether it lives: neither gone nor a zombie.
pub(crate) fn lives(pid: u32) -> bool {
    parent(pid).is_some_and(|(_, state)| !"ZXx".contains(state))
}

/// In the environment of a host of a test, and so of everything that it starts.
pub(crate) const MARK: &str = "FDGUARD_TEST_HOST";

/// Living processes with this mark.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    let wanted = format!("{MARK}={mark}");
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        variables.any(|variable| variable == wanted.as_bytes())
    };
    pids().filter(has_it).filter(|pid| lives(*pid)).collect()
}

/// Kills a process that a test's host started.
pub(crate) fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    // It may have ended already.
    let _gone = pid.map(|pid| kill_process(pid, Signal::KILL));
}

/// Polls until the condition holds.
pub(crate) fn eventually(what: &str, longest: Duration, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + longest;
    testkit::wait_until(what, || {
        let is_so = holds();
        assert!(is_so || Instant::now() < deadline, "not in time: {what}");
        is_so
    });
}
