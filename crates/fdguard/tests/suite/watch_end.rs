//! How a watch ends, and processes that come and go while it runs.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::json;
use testkit::{Victim, listed, victim_path};

use super::watching::{Watching, diagnosis};
use super::{CommandOutput, fdguard};

#[test]
fn r11_a_signal_ends_it_with_the_verdict_so_far_and_its_code() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut victim = Victim::start("leaker");
        let mut watching = Watching::over(&victim, &["--plain"]);
        watching.leak(&mut victim, "1 file", 100);
        watching.signal(signal);
        let said = watching.end();
        assert_eq!((said.code, &*said.stderr), (1, ""), "{signal:?}");
        let text = said.text();
        assert!(text.contains("\nleaking  leaker (pid "), "{text}");
        assert!(
            text.contains("Stopped early. The verdict covers the time until then."),
            "{text}"
        );
        victim.finish();
    }
}

#[test]
fn r11_signals_that_come_together_still_get_their_verdict() {
    let victim = Victim::start("leaker");
    for _ in 0..10 {
        let mut watching = Watching::over(&victim, &["--plain"]);
        watching.idle(5);
        for signal in [Signal::TERM, Signal::TERM, Signal::HUP] {
            watching.signal(signal);
        }
        let said = watching.end();
        let note = "Stopped early. The verdict covers the time until then.";
        assert!(said.text().contains(note), "{}", said.text());
    }
    victim.finish();
}

#[test]
fn a_watch_whose_reader_is_stuck_can_be_ended() {
    let victim = Victim::start("leaker");
    let (reader, writer) = std::io::pipe().unwrap();
    let room = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap() as u64;
    let mut command = fdguard();
    let pid = victim.pid().to_string();
    command
        .args(["watch", &pid, "--every", "1ms"])
        .stdout(writer);
    let mut child = command.spawn().unwrap();
    // No other line fits.
    while rustix::io::ioctl_fionread(&reader).unwrap() + 200 < room {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None => rustix::process::kill_process(pid, Signal::TERM).unwrap(),
        }
        std::thread::yield_now();
    };
    assert_eq!(status.signal(), Some(15));
    victim.finish();
}

#[test]
fn r11_a_process_that_ends_leaves_the_verdict_so_far() {
    let mut victim = Victim::start("exiter");
    let mut watching = Watching::over(&victim, &["--json", "--samples"]);
    watching.idle(60);
    victim.send("go");
    let said = watching.end();
    assert_eq!((said.code, &*said.stderr), (0, ""));
    let document = diagnosis(&said);
    assert_eq!(document["ended"], "process-ended");
    assert_eq!(document["verdict"], "stable");
    assert_eq!(
        document["final"], 103,
        "what the kernel closed was not closed by the program"
    );
    let samples = document["samples"].as_u64().unwrap();
    assert_eq!(said.text().lines().count() as u64, samples + 1);
    assert!(victim.ended_well());
}

#[test]
fn r11_people_are_told_that_the_process_ended() {
    let mut victim = Victim::start("exiter");
    let mut watching = Watching::over(&victim, &["--plain"]);
    watching.line();
    victim.send("go");
    let said = watching.end();
    let note = "The process exited during the watch. The verdict covers the time until then.";
    assert!(said.text().contains(note), "{}", said.text());
    assert!(victim.ended_well());
}

/// A victim under a unique name.
fn named(name: &str, dir: &tempfile::TempDir) -> testkit::VictimLaunch {
    let program = dir.path().join(name);
    if !program.exists() {
        fs::copy(victim_path("leaker"), &program).unwrap();
    }
    testkit::VictimLaunch::program(&program)
}

#[test]
fn r25_a_watch_by_name_goes_on_with_the_successor() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = named("phoenix-one", &dir).start();
    first.tell("10");
    let mut watching = Watching::start(["--name", "phoenix-one", "--json", "--samples"]);
    watching.idle(50);
    let old = first.pid();
    first.finish();
    let second = named("phoenix-one", &dir).start();
    watching.wait_for(&format!("\"pid\":{}", second.pid()));
    watching.idle(50);
    let said = watching.stop();
    assert_eq!((said.code, &*said.stderr), (0, ""), "{}", said.text());
    let document = diagnosis(&said);
    assert_eq!(document["process"]["pid"], second.pid());
    assert_eq!(document["predecessors"][0]["pid"], old);
    assert_eq!(document["predecessors"][0]["final"], 13);
    assert_eq!(document["processes"].as_array().unwrap().len(), 1);
    assert_eq!(document["processes"][0]["final"], 3);
    second.finish();
}

#[test]
fn a_successor_is_found_soon_even_when_looks_are_far_apart() {
    let dir = tempfile::tempdir().unwrap();
    let first = named("phoenix-two", &dir).start();
    let mut command = fdguard();
    let args = ["watch", "--name", "phoenix-two", "--every", "1h", "--json"];
    command.args(args).arg("--samples").current_dir("/");
    let mut watching = Watching::of(command);
    watching.line();
    first.finish();
    let second = named("phoenix-two", &dir).start();
    // Without an hour of patience.
    watching.wait_for(&format!("\"pid\":{}", second.pid()));
    watching.stop();
    second.finish();
}

/// A shell that starts programs on request, and waits for them.
struct Shell {
    child: std::process::Child,
}

impl Shell {
    fn start() -> Self {
        let child = Command::new("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn say(&mut self, line: &str) {
        use std::io::Write as _;
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The number of a process that it starts behind itself.
    fn spawn(&mut self, command: &str) -> u32 {
        use std::io::Read as _;
        self.say(&format!("{command} & echo $!"));
        let mut number = String::new();
        let mut byte = [0];
        let stdout = self.child.stdout.as_mut().unwrap();
        loop {
            stdout.read_exact(&mut byte).unwrap();
            if byte[0] == b'\n' {
                return number.parse().unwrap();
            }
            number.push(char::from(byte[0]));
        }
    }
}

impl Shell {
    /// Waits until it has run everything.
    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn r8_a_child_that_is_started_later_is_followed() {
    let mut shell = Shell::start();
    let root = shell.child.id().to_string();
    let mut watching = Watching::start([&*root, "--tree", "--json", "--samples"]);
    watching.line();
    let child = shell.spawn("tail -f /dev/null");
    watching.wait_for(&format!("\"pid\":{child}"));
    // It ends, and an unrelated program starts: not its successor.
    shell.say(&format!("kill {child}; wait"));
    let other = shell.spawn("sleep 1000");
    watching.wait_for(&format!("\"pid\":{other}"));
    let said = watching.stop();
    shell.say(&format!("kill {other}; wait"));
    shell.end();
    let document = diagnosis(&said);
    assert_eq!(document["process"]["pid"].to_string(), root);
    let pids: Vec<u64> = document["processes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["pid"].as_u64())
        .collect();
    assert_eq!(pids[1..], [u64::from(child), u64::from(other)]);
    assert_eq!(document.get("predecessors"), None);
}

#[test]
fn r11_a_file_of_results_appears_whole_at_the_end_and_only_then() {
    let dir = tempfile::tempdir().unwrap();
    let (out, log) = (dir.path().join("out"), dir.path().join("log"));
    let mut victim = Victim::start("exiter");
    let mut command = fdguard();
    let pid = victim.pid().to_string();
    command.args(["watch", &pid, "--every", "10ms", "--json", "-o"]);
    command.arg(&out).arg("--record").arg(&log);
    let watching = Watching::of(command);
    // The recording begins before the first look.
    while !log.exists() {
        std::thread::yield_now();
    }
    assert!(!out.exists());
    victim.send("go");
    let said = watching.end();
    assert_eq!((said.code, &*said.stderr), (3, ""), "too short to tell");
    assert!(said.stdout.is_empty());
    let said = CommandOutput {
        code: 0,
        stdout: fs::read(&out).unwrap(),
        stderr: String::new(),
    };
    assert_eq!(diagnosis(&said)["ended"], "process-ended");
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["log", "out"], "nothing else is left");
    assert!(victim.ended_well());
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_watch_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log.zst");
    let victim = Victim::start("leaker");
    let mut command = fdguard();
    let pid = victim.pid().to_string();
    command.args(["watch", &pid, "--every", "10ms", "--record"]);
    let mut child = command
        .arg(&log)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    std::io::Read::read_exact(&mut stdout, &mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    // Everything recorded until then is complete.
    let said = super::run(["watch", "--json", "--from", log.to_str().unwrap()]);
    let document = diagnosis(&said);
    assert_eq!(document["gaps"], json!([]), "{document}");
    victim.finish();
}

#[test]
fn r1_our_own_table_never_grows_however_the_watched_one_churns() {
    let victim = Victim::start("churn");
    let mut watching = Watching::over(&victim, &["--plain"]);
    watching.idle(3);
    // Between two lines it may hold what it is reading; only the waiting process counts.
    let held = |watching: &mut Watching| {
        let counts = (0..20).map(|_| {
            watching.line();
            listed(watching.pid()).len()
        });
        counts.min().unwrap()
    };
    let before = held(&mut watching);
    watching.idle(300);
    let after = held(&mut watching);
    assert_eq!(after, before);
    assert!(after < 20, "a handful: {after}");
    let said = watching.stop();
    assert_ne!(said.code, 1, "churn is no leak: {}", said.text());
    victim.finish();
}
