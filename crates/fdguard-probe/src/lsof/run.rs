//! Runs a program to its end, with a deadline and a limit on its output.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fdguard_core::count::as_f64;
use fdguard_core::units::{exact_seconds, size};
use fdguard_core::{Fd, Pid};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::Probe;

/// How long to wait for a program that was killed. One that waits for a device cannot be killed.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a program printed, and how it ended.
#[derive(Debug)]
pub(super) struct RunOutput {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    pub(super) status: ExitStatus,
    /// fdguard's ends of the pipes, while they were open.
    pub(super) ends: [Fd; 2],
}

/// Runs it. On failure the program and its descendants are killed, and the reason is returned.
pub(super) fn run(
    command: &mut Command,
    deadline: Duration,
    most: usize,
) -> Result<RunOutput, String> {
    let until = Instant::now() + deadline;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "not installed".to_owned(),
        _ => format!("cannot be executed: {error}"),
    })?;
    let pipes = [
        child.stdout.take().map(OwnedFd::from),
        child.stderr.take().map(OwnedFd::from),
    ];
    let number = |pipe: &OwnedFd| pipe.as_raw_fd().unsigned_abs();
    let ends = pipes.each_ref().map(|pipe| pipe.as_ref().map_or(0, number));
    let end =
        read_all(pipes, until, most).and_then(|outputs| Ok((outputs, wait(&mut child, until)?)));
    match end {
        Ok(([stdout, stderr], status)) => Ok(RunOutput {
            stdout,
            stderr,
            status,
            ends,
        }),
        Err(error) => {
            let what = match error {
                Errno::TIMEDOUT => format!("not finished after {}", exact_seconds(deadline)),
                Errno::FBIG => format!("more than {} of output", size(as_f64(most as u64))),
                error => format!("cannot read its output: {error}"),
            };
            let end = if kill(&mut child) {
                "killed"
            } else {
                "cannot be killed"
            };
            Err(format!("{what}: {end}"))
        }
    }
}

/// Reads the pipes to their ends; `TIMEDOUT` after the deadline, `FBIG` if there is too much.
fn read_all(
    mut pipes: [Option<OwnedFd>; 2],
    until: Instant,
    most: usize,
) -> Result<[Vec<u8>; 2], Errno> {
    let mut outputs = [Vec::new(), Vec::new()];
    let mut buffer = vec![0; 1 << 16];
    loop {
        let open = pipes.iter().flatten();
        let mut asked: Vec<_> = open.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        if asked.is_empty() {
            return Ok(outputs);
        }
        let left = Timespec::try_from(left(until)?).ok();
        match rustix::event::poll(&mut asked, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        let ready: Vec<bool> = asked.iter().map(|it| !it.revents().is_empty()).collect();
        let open = pipes
            .iter_mut()
            .zip(&mut outputs)
            .filter(|(pipe, _)| pipe.is_some());
        for ((pipe, output), _) in open.zip(ready).filter(|(_, ready)| *ready) {
            let Some(end) = &*pipe else { continue };
            match rustix::io::read(end, &mut buffer[..]) {
                Ok(0) => *pipe = None,
                Ok(length) => output.extend_from_slice(&buffer[..length]),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        if outputs.iter().map(Vec::len).sum::<usize>() > most {
            return Err(Errno::FBIG);
        }
    }
}

fn left(until: Instant) -> Result<Duration, Errno> {
    let left = until.checked_duration_since(Instant::now());
    left.filter(|left| !left.is_zero()).ok_or(Errno::TIMEDOUT)
}

/// Waits for a program that has closed its outputs, which it does at its end.
fn wait(child: &mut Child, until: Instant) -> Result<ExitStatus, Errno> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => std::thread::sleep(left(until)?.min(Duration::from_millis(1))),
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::CHILD)),
        }
    }
}

/// Kills the program and its descendants; whether it is gone.
fn kill(child: &mut Child) -> bool {
    let root: Pid = child.id();
    // Not by process group: in fdguard's own group, the terminal's signals reach the program, too.
    let tree = Probe::new().and_then(|probe| probe.tree(root));
    for pid in tree.unwrap_or_else(|_| vec![root]) {
        if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
            // It may have ended meanwhile.
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
    wait(child, Instant::now() + PATIENCE).is_ok()
}
