//! The service under `fdguard run`, and its events.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use fdguard_proc::stat::ProcStat;
use fdguard_proc::{ProcKey, process};
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

/// A process of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) key: ProcKey,
    pub(super) name: String,
}

/// All descendants of this process.
pub(super) fn below(root: u32) -> Vec<Member> {
    let mut all = Vec::new();
    let known: Vec<(u32, Member)> = process::pids().filter_map(look).collect();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (_, member) in known.iter().filter(|(of, _)| *of == parent) {
            parents.push(member.key.pid);
            all.push(member.clone());
        }
    }
    all
}

/// Those that are still alive.
pub(super) fn left(members: &[Member]) -> Vec<&Member> {
    let is_alive = |member: &&Member| member.key.is_alive();
    members.iter().filter(is_alive).collect()
}

/// Its parent and its identity; `None` for a zombie.
fn look(pid: u32) -> Option<(u32, Member)> {
    let member = |stat: &ProcStat<'_>| Member {
        key: stat.key(pid),
        name: String::from_utf8_lossy(stat.comm).into_owned(),
    };
    let living = |stat: &ProcStat<'_>| (!stat.is_zombie()).then(|| (stat.ppid, member(stat)));
    process::stat(pid, living).ok()?
}
