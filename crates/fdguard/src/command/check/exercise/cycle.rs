//! One cycle: starts the commands of the exercise together and waits for them.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use fdguard_core::proof::scenario::Work;

use super::super::family::EXERCISE;
use super::{Stop, client};

/// How often to check for a request to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How many bytes of its output are shown.
const SHOWN: u64 = 4096;

/// How a command failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) how: String,
    pub(super) output: Vec<u8>,
    /// Whether it took too long.
    pub(super) is_late: bool,
}

/// Runs one cycle of this work, `count` times in parallel. Ends early on request.
pub(super) fn work(
    work: &Work,
    count: u32,
    cycle: u32,
    within: Duration,
    stop: &Stop,
) -> anyhow::Result<Result<(), Failure>> {
    let failed = |how: String| Failure {
        how,
        output: Vec::new(),
        is_late: false,
    };
    match work {
        Work::Command {
            run: command,
            must_fail,
        } => {
            let done = run(command, count, cycle, within, stop)?;
            Ok(match (done, must_fail) {
                (done, false) => done,
                (Ok(()), true) => Err(failed("succeeded, but must fail".to_owned())),
                // A command that hangs does not fail in the intended way.
                (Err(failure), true) if failure.is_late => Err(failure),
                (Err(_), true) => Ok(()),
            })
        }
        Work::TcpDisconnect { address, send } => {
            let all = (0..count).map(|_| client::disconnect(address, send.as_bytes()));
            let done: std::io::Result<()> = all.collect();
            Ok(done.map_err(|error| failed(format!("failed at {address}: {error}"))))
        }
        Work::HttpTimeout {
            address,
            path,
            after,
        } => {
            let all = (0..count).map(|_| client::give_up(address, path, *after));
            let done: std::io::Result<()> = all.collect();
            Ok(done.map_err(|error| failed(format!("failed at {address}: {error}"))))
        }
    }
}

/// Runs `command` in a shell, `count` times in parallel.
pub(super) fn run(
    command: &str,
    count: u32,
    cycle: u32,
    within: Duration,
    stop: &Stop,
) -> anyhow::Result<Result<(), Failure>> {
    let mut children = Vec::new();
    for index in 0..count {
        children.push(Running::start(command, cycle, index)?);
    }
    let deadline = Instant::now() + within;
    for child in &mut children {
        if let Err(failure) = child.wait(deadline, stop)? {
            return Ok(Err(failure));
        }
    }
    Ok(Ok(()))
}

/// A running command; dropping it before its end kills its process group.
struct Running {
    child: Child,
    handle: Option<OwnedFd>,
    output: std::fs::File,
    has_ended: bool,
}

impl Running {
    fn start(command: &str, cycle: u32, index: u32) -> anyhow::Result<Self> {
        // Output goes to an unnamed file: the process would block on a pipe that is not read.
        let output = std::fs::File::from(rustix::fs::memfd_create(
            "exercise",
            rustix::fs::MemfdFlags::CLOEXEC,
        )?);
        let child = Command::new("/bin/sh")
            .args(["-c", command])
            .env(EXERCISE, "1")
            .env("FDGUARD_CYCLE", cycle.to_string())
            .env("FDGUARD_INDEX", index.to_string())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn()?;
        let handle = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).ok();
        Ok(Self {
            child,
            handle,
            output,
            has_ended: false,
        })
    }

    fn wait(&mut self, deadline: Instant, stop: &Stop) -> anyhow::Result<Result<(), Failure>> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.has_ended = true;
                return Ok(self.judge(status));
            }
            stop.check()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let how = "did not finish within --cycle-timeout".to_owned();
                let output = self.said();
                return Ok(Err(Failure {
                    how,
                    output,
                    is_late: true,
                }));
            }
            self.pause(left.min(LOOK));
        }
    }

    /// Waits until the process ends, at most this long.
    fn pause(&self, most: Duration) {
        let timeout = Timespec::try_from(most).unwrap_or_default();
        match &self.handle {
            Some(handle) => {
                let mut fds = [PollFd::new(handle, PollFlags::IN)];
                // If it wakes early, the caller looks again.
                let _ = poll(&mut fds, Some(&timeout));
            }
            None => std::thread::sleep(most.min(Duration::from_millis(5))),
        }
    }

    fn judge(&mut self, status: ExitStatus) -> Result<(), Failure> {
        if status.success() {
            return Ok(());
        }
        Err(Failure {
            how: format!("ended with {status}"),
            output: self.said(),
            is_late: false,
        })
    }

    /// The end of its output.
    fn said(&mut self) -> Vec<u8> {
        use std::io::Seek as _;
        let length = self.output.metadata().map_or(0, |meta| meta.len());
        let from = std::io::SeekFrom::Start(length.saturating_sub(SHOWN));
        let mut said = Vec::new();
        let read = self.output.seek(from);
        // Unreadable output is not shown.
        drop(read.and_then(|_| self.output.read_to_end(&mut said)));
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // It is still a child of this process, so pid and group cannot have been reused.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        drop(self.child.wait());
    }
}
