//! The service under `fdguard run`, and its events.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cli::DrillArgs;

/// A supervisor with its service. Drop kills it; its keepers end the rest.
#[derive(Debug)]
pub(super) struct Subject {
    child: Child,
    events: Receiver<Value>,
}

impl Subject {
    /// Starts `fdguard run` with the arguments of the drill, more flags, and this command.
    pub(super) fn start(
        args: &DrillArgs,
        flags: &[&str],
        wrapper: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args([
            "run",
            "--nest",
            "--log-format",
            "json",
            "--crash-loop",
            "off",
            "--evidence",
            "off",
        ]);
        if let Some(ready) = &args.ready {
            command.args(["--ready", ready]);
        }
        for listen in &args.listen {
            command.args(["--listen", listen]);
        }
        command
            .args(flags)
            .arg("--")
            .args(wrapper)
            .args(&args.command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let (sender, events) = channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::spawn(move || listen(stderr, &sender));
        }
        Ok(Self { child, events })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next event of one of these names, within this time.
    pub(super) fn event(&self, names: &[&str], within: Duration) -> Option<Value> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self.events.recv_timeout(left).ok()?;
            if names.iter().any(|name| event["event"] == **name) {
                return Some(event);
            }
        }
    }

    /// The service's process once it runs, and is ready if that can be checked; or why not.
    pub(super) fn up(&self, args: &DrillArgs, within: Duration) -> Result<u32, String> {
        let until = Instant::now() + within;
        let wanted = if args.ready.is_some() {
            "ready"
        } else {
            "start"
        };
        let names = [
            wanted,
            "start_failed",
            "down",
            "port_conflict",
            "crash_loop",
        ];
        let event = self.event(&names, until.saturating_duration_since(Instant::now()));
        let event = event.ok_or_else(|| format!("no {wanted} event within {within:?}"))?;
        if event["event"] != wanted {
            let text = event["text"]
                .as_str()
                .unwrap_or("the service did not start");
            return Err(text.to_owned());
        }
        let pid = event["pid"]
            .as_u64()
            .and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| "the event has no pid".to_owned())
    }

    pub(super) fn signal(&self, signal: Signal) {
        // An error means that it is already gone.
        let _gone = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for its end, at most this long.
    pub(super) fn ended(&mut self, within: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + within;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= until {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It is usually gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn listen(stderr: ChildStderr, sender: &Sender<Value>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let Ok(event) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        if event["schema"] == "fdguard.event/1" && sender.send(event).is_err() {
            return;
        }
    }
}

/// A process with its start time: a pid alone may be reused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pid: u32,
    pub(super) name: String,
    started: String,
}

/// All descendants of this process.
pub(super) fn below(root: u32) -> Vec<Member> {
    let mut all = Vec::new();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return all;
    };
    let numbers = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let known: Vec<(u32, Member)> = numbers.filter_map(look).collect();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (_, member) in known.iter().filter(|(of, _)| *of == parent) {
            parents.push(member.pid);
            all.push(member.clone());
        }
    }
    all
}

/// Those that are still alive.
pub(super) fn left(members: &[Member]) -> Vec<&Member> {
    let is_there =
        |member: &&Member| look(member.pid).is_some_and(|(_, now)| now.started == member.started);
    members.iter().filter(is_there).collect()
}

/// Its parent and its identity; `None` for a zombie.
fn look(pid: u32) -> Option<(u32, Member)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    if matches!(*fields.first()?, "Z" | "X") {
        return None;
    }
    let member = Member {
        pid,
        name: head.split_once('(')?.1.to_owned(),
        started: (*fields.get(19)?).to_owned(),
    };
    Some((fields.get(1)?.parse().ok()?, member))
}
