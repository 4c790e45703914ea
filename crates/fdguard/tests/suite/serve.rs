//! `fdguard serve`, `history` and `fleet` as commands: start, refusals, exit codes, what is left.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::NOBODY;

use super::{AsNobody, CommandOutput, fdguard, run};

/// A running server without a token.
pub(super) struct ServeProcess {
    pub(super) child: Child,
    address: String,
    pub(super) state: TempDir,
}

pub(super) fn serve(state: &Path) -> Command {
    with_arguments(fdguard(), state)
}

fn with_arguments(mut command: Command, state: &Path) -> Command {
    command.arg("serve").arg("--no-evidence");
    with_pace(command, state)
}

pub(super) fn with_pace(mut command: Command, state: &Path) -> Command {
    command
        .args(["--listen", "127.0.0.1:0", "--no-token"])
        .args([
            "--every",
            "100ms",
            "--sample-every",
            "100ms",
            "--budget",
            "50%",
            "--state",
        ])
        .arg(state);
    command
}

impl ServeProcess {
    pub(super) fn start() -> Self {
        Self::of(tempfile::tempdir().unwrap(), &[])
    }

    pub(super) fn of(state: TempDir, more: &[&str]) -> Self {
        let command = serve(state.path());
        Self::launch(state, command, more)
    }

    pub(super) fn launch(state: TempDir, mut command: Command, more: &[&str]) -> Self {
        let mut child = command
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let address = line.split("listens at http://").nth(1);
        let Some(address) = address.and_then(|rest| rest.split(' ').next()) else {
            let output = child.wait_with_output().unwrap();
            panic!("{line}{}", String::from_utf8_lossy(&output.stderr));
        };
        Self {
            address: address.to_owned(),
            child,
            state,
        }
    }

    pub(super) fn get(&self, path: &str) -> (u16, Vec<u8>) {
        self.get_with(path, "")
    }

    /// With these lines in the head of the request.
    fn get_with(&self, path: &str, lines: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {host}\r\n{lines}\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer[end + 4..].to_vec())
    }

    /// A stream of server-sent events.
    pub(super) fn events(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(
            stream,
            "GET /api/v1/events HTTP/1.1\r\nHost: {host}\r\n\r\n"
        )
        .unwrap();
        BufReader::new(stream)
    }

    pub(super) fn overview(&self) -> Value {
        serde_json::from_slice(&self.get("/api/v1/overview").1).unwrap()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// After it was killed; its directory.
    pub(super) fn reap(mut self) -> TempDir {
        self.child.wait().unwrap();
        let empty = tempfile::tempdir().unwrap();
        std::mem::replace(&mut self.state, empty)
    }

    /// Asks it to end; its directory, and what it wrote to the log.
    pub(super) fn stop(mut self) -> (TempDir, String) {
        self.signal(Signal::TERM);
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut log).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{log}");
        let empty = tempfile::tempdir().unwrap();
        (std::mem::replace(&mut self.state, empty), log)
    }
}

impl Drop for ServeProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(super) fn refused(mut command: Command) -> CommandOutput {
    let output = CommandOutput::of(command.output().unwrap());
    assert_eq!(output.text(), "", "nothing on stdout");
    output
}

#[test]
fn a_server_leaves_a_history_that_is_read_without_it() {
    let served = ServeProcess::start();
    let victim = testkit::Victim::start("leaker");
    // What is shown is written before the server ends.
    testkit::wait_until("its service", || {
        let overview = served.overview();
        let mut services = overview["services"].as_array().unwrap().iter();
        services.any(|one| one["kind"] == "command" && one["name"] == "leaker")
    });
    let (state, log) = served.stop();
    victim.finish();
    assert!(
        log.contains("event=serve_ready") && log.contains("event=serve_end"),
        "{log}"
    );
    let dir = state.path().to_str().unwrap();
    let listed = run(["history", "--state", dir]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    assert!(
        listed.text().lines().any(|line| line == "command leaker"),
        "{}",
        listed.text()
    );
    let one = run(["history", "leaker", "--state", dir, "--json"]);
    assert_eq!(one.json()["schema"], "fdguard.history/1");
    let now = run(["history", "leaker", "--state", dir, "--at", "0s"]);
    assert_eq!(now.code, 0, "{}", now.stderr);
    assert!(now.text().starts_with("command leaker  "), "{}", now.text());
    let both = [
        "history", "leaker", "--state", dir, "--at", "0s", "--at", "0s", "--json",
    ];
    assert_eq!(run(both).json()["schema"], "fdguard.moment.difference/1");
    let early = run(["history", "leaker", "--state", dir, "--at", "300d"]);
    assert_eq!((early.code, early.text()), (3, ""));
    let wrong = run(["history", "leaker", "--state", dir, "--at", "yesterday"]);
    assert_eq!((wrong.code, wrong.text()), (2, ""));
    let none = run(["history", "no-such-service", "--state", dir]);
    assert_eq!(none.code, 3);
    assert!(
        none.stderr.contains("no service \"no-such-service\""),
        "{}",
        none.stderr
    );
    let nowhere = run(["history", "--state", "/nonexistent"]);
    assert_eq!((nowhere.code, nowhere.text()), (3, ""));
}

#[test]
fn an_address_in_use_is_refused_before_anything_else() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let state = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    command.args(["serve", "--no-token", "--listen", &address, "--state"]);
    command.arg(state.path());
    let output = refused(command);
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains(&address), "{}", output.stderr);
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_with_a_hint() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let closed = tempfile::tempdir().unwrap();
    let dir = closed.path().join("state");
    let nobody = AsNobody::new();
    let output = nobody.run(&[
        "serve",
        "--no-token",
        "--listen",
        "127.0.0.1:0",
        "--state",
        dir.to_str().unwrap(),
    ]);
    assert_eq!((output.code, output.text()), (3, ""), "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("hint: name a directory with --state"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_process_that_becomes_unreadable_is_a_gap_and_still_counted() {
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let nobody = AsNobody::new();
    let state = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(state.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let command = with_arguments(nobody.command(&[]), state.path());
    let served = ServeProcess::launch(state, command, &[]);
    let mut victim = testkit::Victim::of("leaker").as_user(NOBODY).start();
    let pid = victim.pid();
    let watched = |overview: &Value| {
        let all = overview["watched"].as_array()?;
        all.iter().find(|one| one["pid"] == pid).cloned()
    };
    testkit::wait_for("its classes", || {
        victim.tell("3 file");
        let one = watched(&served.overview())?;
        one["classes"].is_array().then_some(())
    });
    // From here on its table is closed to its own user, too.
    victim.tell("1 secrecy");
    let what = "the classes of descriptors of ";
    let count = testkit::wait_for("the gap", || {
        victim.tell("3 file");
        let overview = served.overview();
        let gaps = overview["gaps"].as_array()?;
        let gap = gaps.iter().find(|gap| {
            let text = gap["what"].as_str();
            text.is_some_and(|text| text.starts_with(what))
        })?;
        assert!(
            gap["remedy"].as_str().unwrap().contains("CAP_SYS_PTRACE"),
            "{gap}"
        );
        // Its classes are unknown now, not what they were.
        let one = watched(&overview).filter(|one| one["classes"].is_null())?;
        one["count"].as_u64()
    });
    victim.tell("40 file");
    testkit::wait_for("more descriptors", || {
        let now = watched(&served.overview())?["count"].as_u64()?;
        (now >= count + 40).then_some(())
    });
    victim.finish();
    served.stop();
}

#[test]
fn bad_arguments_of_serve_and_fleet_are_usage_errors() {
    let url = "http://127.0.0.1:1";
    for args in [
        &["serve", "--every", "0s"][..],
        &["serve", "--budget", "half"],
        &["serve", "--alertmanager", "nonsense"],
        &["serve", "--otlp", "ftp://x"],
        &["serve", "--max-disk", "5"],
        &["serve", "--listen", "0.0.0.0:0"],
        &["serve", "--host-label", "a-b"],
        &["fleet"],
        &["fleet", "--from", "nonsense"],
        &["fleet", "--from", url, "service"],
        &["fleet", "--from", url, "top", "web"],
        &["fleet", "--from", url, "check", "--max-usage", "x"],
        &["snap", "--pod", "no-slash-and-bad/name/x"],
    ] {
        let output = run(args);
        assert_eq!(
            (output.code, output.text()),
            (2, ""),
            "{args:?}: {}",
            output.stderr
        );
    }
    let down = run(["fleet", "--from", url]);
    assert_eq!((down.code, down.text()), (3, ""));
    assert!(
        down.stderr.starts_with("fdguard: http://127.0.0.1:1: "),
        "{}",
        down.stderr
    );
}

#[test]
fn a_pod_that_does_not_exist_is_not_an_empty_result() {
    let output = run(["snap", "--pod", "nowhere/nothing"]);
    assert_eq!((output.code, output.text()), (3, ""), "{}", output.stderr);
    assert!(
        output.stderr.contains("nowhere/nothing"),
        "{}",
        output.stderr
    );
}

#[test]
fn a_traced_process_has_a_profile_and_others_do_not() {
    let served = ServeProcess::start();
    let (status, _) = served.get(&format!("/debug/pprof/fds?pid={}", std::process::id()));
    assert_eq!(status, 404);
    let (traced, pid) = traced();
    let (status, profile) = served.get(&format!("/debug/pprof/fds?pid={pid}"));
    end(traced);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&profile));
    assert!(profile.starts_with(&[0x1f, 0x8b]), "gzip");
}

/// A program that holds descriptors and is traced; its pid.
fn traced() -> (Child, String) {
    let mut traced = fdguard()
        .args(["trace", "--for", "60s", "-o", "/dev/null", "--"])
        .args(["python3", "-c", HOLD])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(traced.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    (traced, line.trim().to_owned())
}

fn end(mut traced: Child) {
    kill_process(Pid::from_child(&traced), Signal::TERM).unwrap();
    traced.wait().unwrap();
}

#[test]
fn go_tool_pprof_and_scrapers_fetch_a_profile_with_the_token() {
    // The newest Go builds its tools when they are used, from sources that are not installed.
    let Some(go) = testkit::go_toolchain(21) else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let mut command = fdguard();
    command.args(["serve", "--listen", "127.0.0.1:0", "--no-evidence"]);
    command.arg("--state").arg(state.path());
    let token = state.path().join("token");
    command.arg("--token-file").arg(&token);
    // As in a container without /tmp: the answer is made in the directory of the state.
    command.env("TMPDIR", "/nonexistent");
    let served = ServeProcess::launch(state, command, &[]);
    let token = std::fs::read_to_string(&token).unwrap();
    let token = token.trim();
    let (traced, pid) = traced();
    let fetch = |user: &str| {
        let url = format!("http://{user}{}/debug/pprof/fds?pid={pid}", served.address);
        let done = go
            .command()
            // With a number of seconds it adds a parameter.
            .args(["tool", "pprof", "-seconds", "1", "-top", &url])
            .env("PPROF_TMPDIR", served.state.path())
            .output()
            .unwrap();
        [done.stdout, done.stderr].concat()
    };
    let top = fetch(&format!("pprof:{token}@"));
    let refused = fetch(&format!("pprof:{token}x@"));
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let path = format!("/debug/pprof/fds?pid={pid}");
    let plain = served.get_with(&path, &bearer);
    let scraped = served.get_with(&format!("{path}&seconds=10&debug=0&gc=1"), &bearer);
    let wrong = served.get_with(&format!("{path}&second=10"), &bearer).0;
    end(traced);
    let (top, refused) = (
        String::from_utf8_lossy(&top),
        String::from_utf8_lossy(&refused),
    );
    assert!(top.contains("open_many"), "{top}");
    assert!(refused.contains("401 Unauthorized"), "{refused}");
    for (status, profile) in [plain, scraped] {
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&profile));
        assert!(profile.starts_with(&[0x1f, 0x8b]), "gzip");
    }
    assert_eq!(wrong, 400);
}

const HOLD: &str = "
import os, sys
def open_many():
    return [open('/dev/null') for _ in range(20)]
held = open_many()
print(os.getpid(), flush=True)
sys.stdin.read()
import time
time.sleep(60)
";

/// A server of metrics that refuses everything; returns what it was asked first.
fn asked_with(listener: TcpListener) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = String::new();
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let line = line.unwrap();
            if line.is_empty() {
                break;
            }
            head.push_str(&line.to_ascii_lowercase());
            head.push('\n');
        }
        drop(stream.write_all(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"));
        head
    })
}

#[test]
fn the_fleet_on_the_page_is_asked_for_with_the_token_of_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "s3cret\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let from = format!("http://{}", listener.local_addr().unwrap());
    let asked = asked_with(listener);
    let options = ["--fleet-from", &from, "--fleet-token-file"];
    let options = [&options[..], &[file.to_str().unwrap()]].concat();
    let served = ServeProcess::of(tempfile::tempdir().unwrap(), &options);
    let (status, _) = served.get("/api/v1/fleet");
    assert!(status >= 400, "{status}");
    let head = asked.join().unwrap();
    assert!(head.contains("authorization: bearer s3cret\n"), "{head}");

    let missing = serve(dir.path())
        .args([
            "--fleet-from",
            &from,
            "--fleet-token-file",
            "/no/such/token",
        ])
        .output();
    let output = CommandOutput::of(missing.unwrap());
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(
        output
            .stderr
            .contains("--fleet-token-file /no/such/token: ")
    );
}

/// The name of the service is that of the file, and no other test has it.
#[test]
fn a_service_that_the_configuration_names_is_traced_when_its_leak_is_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let name = format!("tr{}", std::process::id());
    let program = dir.path().join(&name);
    std::fs::copy(
        testkit::c_variant("drip", "O2", &["-O2", "-g"]).unwrap(),
        &program,
    )
    .unwrap();
    let config = dir.path().join("fdguard.toml");
    std::fs::write(&config, format!("[serve]\ntrace = [\"{name}\"]\n")).unwrap();
    let options = ["--trace-for", "2s", "--config", config.to_str().unwrap()];
    let served = ServeProcess::of(tempfile::tempdir().unwrap(), &options);
    let mut leaking = Command::new(&program)
        .arg("600")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let traces = served.state.path().join("traces");
    testkit::wait_until("a trace of the leak", || {
        std::fs::read_dir(&traces).is_ok_and(|mut entries| entries.next().is_some())
    });
    leaking.kill().unwrap();
    leaking.wait().unwrap();
}
