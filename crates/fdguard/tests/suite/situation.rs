//! Shared by the tests of situations: a program of `testkit/situations` under `trace` or `check`,
//! and the answer.
//!
//! The victims pace themselves and print what they hold. A test waits for their lines and answers,
//! and compares the document with what they printed.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use testkit::{have, skip};

use super::fdguard;

/// How long a test waits for anything, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The path of a victim's source.
pub(crate) fn source(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testkit/situations");
    dir.canonicalize().unwrap().join(name)
}

/// The lines of a victim's source that have this mark.
pub(crate) fn lines_of(name: &str, mark: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(source(name)).unwrap();
    let marked = text.lines().zip(1_u64..);
    let marked = marked.filter(|(line, _)| line.trim_end_matches(" */").ends_with(mark));
    let lines: Vec<u64> = marked.map(|(_, number)| number).collect();
    assert!(!lines.is_empty(), "no mark {mark} in {name}");
    lines
}

/// The one line of a victim's source that has this mark.
pub(crate) fn line_of(name: &str, mark: &str) -> u64 {
    let lines = lines_of(name, mark);
    assert_eq!(lines.len(), 1, "{mark} in {name}");
    lines[0]
}

/// A victim in C, built with lines and with every call in its own frame.
pub(crate) fn compiled(name: &str) -> PathBuf {
    let flags = ["-std=gnu11", "-Wall", "-Wextra", "-O1", "-g", "-fno-inline"];
    let source = format!("situations/{name}.c");
    testkit::compiled("cc", &source, &format!("situation-{name}"), &flags)
        .expect("a victim that compiles")
}

/// The interpreter itself, not a wrapper script; prints a message if there is none.
pub(crate) fn python() -> Option<PathBuf> {
    if !have("python3") {
        skip("needs python3");
        return None;
    }
    let mut command = Command::new("python3");
    let output = command.args(["-c", "import sys; print(sys.executable)"]);
    let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
    Some(PathBuf::from(text.trim()))
}

/// The arguments of a command line.
pub(crate) fn words<const N: usize>(words: [&dyn AsRef<OsStr>; N]) -> Vec<OsString> {
    words.iter().map(|word| word.as_ref().to_owned()).collect()
}

/// A running `fdguard trace` or `fdguard check` with its victim. Dropped early, all of it is
/// killed.
pub(crate) struct Session {
    child: Option<Child>,
    group: Pid,
    lines: Receiver<String>,
    seen: Vec<String>,
    directory: TempDir,
}

impl Session {
    /// Starts the victim under `trace` or `check`; the document goes to a file.
    pub(crate) fn start(verb: &str, words: &[OsString]) -> Self {
        Self::of(verb, words, |_| {})
    }

    /// The same, with a hook to change the command: its environment, its directory, more options.
    pub(crate) fn of(verb: &str, words: &[OsString], prepare: impl FnOnce(&mut Command)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = fdguard();
        command.arg(verb).arg("--json").arg("-o");
        command.arg(directory.path().join("document"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        prepare(&mut command);
        command.arg("--").args(words).stdout(Stdio::piped());
        // A file: a process that the victim leaves behind would keep a pipe open.
        command.stderr(std::fs::File::create(directory.path().join("stderr")).unwrap());
        // Its own process group, as in a shell: Ctrl-C reaches the tracer and the program.
        let mut child = command.process_group(0).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            group: Pid::from_child(&child),
            child: Some(child),
            lines,
            seen: Vec::new(),
            directory,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.group.as_raw_nonzero().get().unsigned_abs()
    }

    fn stderr(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("stderr")).unwrap_or_default()
    }

    /// Waits for a line of the victim that begins with this word; returns the rest.
    #[track_caller]
    pub(crate) fn line(&mut self, word: &str) -> String {
        let start = format!("{word} ");
        loop {
            let Ok(line) = self.lines.recv_timeout(PATIENCE) else {
                panic!("no {word}: {:?} {}", self.seen, self.stderr());
            };
            self.seen.push(line);
            if let Some(rest) = self.seen.last().and_then(|line| line.strip_prefix(&start)) {
                return rest.to_owned();
            }
        }
    }

    /// The port that the victim announces.
    #[track_caller]
    pub(crate) fn port(&mut self) -> u16 {
        self.line("READY").parse().unwrap()
    }

    /// Ctrl-C: the tracer and the program get it at once.
    pub(crate) fn interrupt(&self) {
        kill_process_group(self.group, Signal::INT).unwrap();
    }

    /// SIGTERM to the tracer alone, which passes it on.
    pub(crate) fn terminate(&self) {
        kill_process(self.group, Signal::TERM).unwrap();
    }

    /// Waits for the end; returns the answer.
    pub(crate) fn end(mut self) -> Answer {
        let mut child = self.child.take().unwrap();
        let status = child.wait().unwrap();
        // A process that outlives the program may hold its output open for long.
        let last = Instant::now() + Duration::from_secs(3);
        loop {
            let left = last.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let text =
            std::fs::read_to_string(self.directory.path().join("document")).unwrap_or_default();
        let stderr = self.stderr();
        let last = text.lines().last().unwrap_or_default();
        let document = serde_json::from_str(last)
            .unwrap_or_else(|error| panic!("{error}: {status} {text} {stderr}"));
        Answer {
            code: status.code().expect("ended by itself"),
            document,
            lines: std::mem::take(&mut self.seen),
            stderr,
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Gone already, mostly.
            let _gone = kill_process_group(self.group, Signal::KILL);
            drop(child.wait());
        }
    }
}

/// The result of a session.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) document: Value,
    /// What the victim printed.
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl Answer {
    /// One run to its end.
    pub(crate) fn to(verb: &str, words: &[OsString]) -> Self {
        Session::start(verb, words).end()
    }

    /// What follows this word in the victim's lines.
    #[track_caller]
    pub(crate) fn told(&self, word: &str) -> Vec<&str> {
        let mut told = Vec::new();
        for line in &self.lines {
            told.extend(
                line.split_once(word)
                    .map(|(_, rest)| rest.trim())
                    .filter(|_| line.starts_with(word)),
            );
        }
        assert!(!told.is_empty(), "no {word} in {:?}", self.lines);
        told
    }

    /// The number that the victim printed after this word.
    #[track_caller]
    pub(crate) fn number(&self, word: &str) -> u64 {
        self.told(word)[0].parse().unwrap()
    }

    pub(crate) fn verdict(&self) -> &str {
        self.document["verdict"].as_str().unwrap()
    }

    /// The findings that count: all but the informational ones.
    pub(crate) fn findings(&self) -> Vec<&Value> {
        let findings = self.document["findings"].as_array().unwrap();
        let counts = findings.iter();
        counts.filter(|one| one["severity"] != "info").collect()
    }

    /// The findings that blame this line.
    pub(crate) fn blaming(&self, file: &str, lines: &[u64]) -> Vec<&Value> {
        let mut findings = self.findings();
        findings.retain(|one| is_at(&one["origin"]["culprit"], file, lines));
        findings
    }

    /// Leaking: exit code 1, this verdict, and a finding with this line; no finding blames another.
    #[track_caller]
    pub(crate) fn assert_leaking(&self, file: &str, line: u64) {
        self.assert_blamed(file, &[line]);
        assert_eq!(self.verdict(), "leaking", "{}", self.brief());
        assert_eq!(self.code, 1, "{}", self.brief());
    }

    /// A failing finding with one of these lines, and none with another line.
    #[track_caller]
    pub(crate) fn assert_blamed(&self, file: &str, lines: &[u64]) {
        let blaming = self.blaming(file, lines).len();
        assert!(blaming > 0, "{file}:{lines:?}: {}", self.brief());
        let others = self.findings().len() - blaming;
        assert_eq!(others, 0, "not of {file}:{lines:?}: {}", self.brief());
    }

    /// Every finding has a line, or a gap that explains why not.
    #[track_caller]
    pub(crate) fn assert_origins(&self) {
        let findings = self.findings();
        let lost = findings.iter().any(|one| one["origin"].is_null());
        let gaps = self.document["gaps"].as_array().unwrap();
        assert!(!lost || !gaps.is_empty(), "{}", self.brief());
    }

    /// Nothing is wrong: not leaking, not growing, nothing found, exit code 0.
    #[track_caller]
    pub(crate) fn assert_quiet(&self) {
        assert!(
            matches!(self.verdict(), "stable" | "bounded" | "unknown"),
            "{}",
            self.brief()
        );
        assert_eq!(self.findings().len(), 0, "{}", self.brief());
        let hazards = self.document["hazards"].as_array();
        assert!(hazards.is_none_or(Vec::is_empty), "{}", self.brief());
        assert_eq!(self.code, 0, "{}", self.brief());
    }

    /// The answer in a few lines, for a test that fails.
    pub(crate) fn brief(&self) -> String {
        let findings = self.document["findings"].as_array().unwrap().iter();
        let findings: Vec<String> = findings
            .map(|one| {
                let culprit = &one["origin"]["culprit"];
                let place = (&culprit["file"], &culprit["line"]);
                let [severity, rule, class, comm, pid, count, why] =
                    ["severity", "rule", "class", "comm", "pid", "count", "why"]
                        .map(|key| one[key].to_string());
                format!("\n  {severity} {rule} {class} {comm} {pid} x{count} at {place:?}: {why}")
            })
            .collect();
        let [verdict, hazards, gaps, peak, released] =
            ["verdict", "hazards", "gaps", "peak", "released_at_end"]
                .map(|key| &self.document[key]);
        format!(
            "exit {}, verdict {verdict}, peak {peak}, released {released}{}\n  hazards {hazards}\n  gaps {gaps}\n  lines {:?}\n  {}",
            self.code,
            findings.concat(),
            self.lines,
            self.stderr
        )
    }
}

/// Whether a place of the document is one of these lines of a file.
pub(crate) fn is_at(place: &Value, file: &str, lines: &[u64]) -> bool {
    let path = place["file"].as_str().unwrap_or_default();
    let name = Path::new(path).file_name().and_then(OsStr::to_str);
    name == Some(file)
        && place["line"]
            .as_u64()
            .is_some_and(|line| lines.contains(&line))
}

/// The text report of one run, in this directory: what `-o` writes without `--json`.
pub(crate) fn text_of(verb: &str, words: &[OsString], dir: &Path) -> String {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report");
    let mut command = fdguard();
    command.arg(verb).arg("-o").arg(&file).arg("--").args(words);
    let output = command.current_dir(dir).output().unwrap();
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Sends a request and returns the answer; waits for the server to listen.
#[track_caller]
pub(crate) fn get(port: u16) -> String {
    let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
    let mut stream = testkit::wait_for("the server listens", connect);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.") && text.contains(" 200 "),
        "{text}"
    );
    text
}

/// This many requests, one after the other, one per `period` at most.
pub(crate) fn requests(port: u16, count: u32, period: Duration) -> String {
    let mut last = String::new();
    for _ in 0..count {
        // A server that was slow to start gets no burst: that would be another situation.
        let begin = Instant::now();
        last = get(port);
        pause_until(begin + period);
    }
    last
}

/// The pace of users and of load, not a wait for the program.
pub(crate) fn pause_until(time: Instant) {
    std::thread::sleep(time.saturating_duration_since(Instant::now()));
}

/// The time that passes without any request: the situation itself.
pub(crate) fn idle(time: Duration) {
    std::thread::sleep(time);
}
