//! Runs a program to its end, with a deadline and a limit on its output.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

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
    let mut streams = [
        Stream::new(child.stdout.take().map(OwnedFd::from)),
        Stream::new(child.stderr.take().map(OwnedFd::from)),
    ];
    let ends = [streams[0].number, streams[1].number];
    let ended = read_all(&mut streams, until, most).and_then(|()| wait(&mut child, until));
    let [stdout, stderr] = streams.map(|stream| stream.bytes);
    match ended {
        Ok(status) => Ok(RunOutput {
            stdout,
            stderr,
            status,
            ends,
        }),
        Err(failure) => {
            let is_gone = kill(&mut child);
            let what = match failure {
                RunFailure::Deadline => format!("not finished after {} s", deadline.as_secs_f32()),
                RunFailure::Output => format!("more than {} MiB of output", most >> 20),
                RunFailure::Errno(error) => format!("cannot read its output: {error}"),
            };
            let left = "it does not end even when killed";
            Err(if is_gone {
                format!("{what}: killed")
            } else {
                format!("{what}: {left} (process {})", child.id())
            })
        }
    }
}

enum RunFailure {
    Deadline,
    Output,
    Errno(Errno),
}

/// One output of the program.
struct Stream {
    number: Fd,
    /// Absent after its end.
    pipe: Option<OwnedFd>,
    bytes: Vec<u8>,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>) -> Self {
        let number = pipe
            .as_ref()
            .map_or(0, |pipe| pipe.as_raw_fd().unsigned_abs());
        Self {
            number,
            pipe,
            bytes: Vec::new(),
        }
    }

    /// Reads what is there.
    fn read(&mut self, buffer: &mut [u8]) -> Result<(), Errno> {
        let Some(pipe) = &self.pipe else {
            return Ok(());
        };
        match rustix::io::read(pipe, &mut *buffer) {
            Ok(0) => self.pipe = None,
            Ok(length) => self.bytes.extend_from_slice(&buffer[..length]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Reads both outputs to their ends.
fn read_all(streams: &mut [Stream; 2], until: Instant, most: usize) -> Result<(), RunFailure> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let mut asked: Vec<PollFd<'_>> = streams
            .iter()
            .filter_map(|stream| stream.pipe.as_ref())
            .map(|pipe| PollFd::new(pipe, PollFlags::IN))
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        let left = Timespec::try_from(left(until)?).ok();
        match rustix::event::poll(&mut asked, left.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(RunFailure::Errno(error)),
        }
        let ready: Vec<bool> = asked.iter().map(|it| !it.revents().is_empty()).collect();
        let open = streams.iter_mut().filter(|stream| stream.pipe.is_some());
        for (stream, _) in open.zip(ready).filter(|(_, ready)| *ready) {
            stream.read(&mut buffer).map_err(RunFailure::Errno)?;
        }
        if streams
            .iter()
            .map(|stream| stream.bytes.len())
            .sum::<usize>()
            > most
        {
            return Err(RunFailure::Output);
        }
    }
}

fn left(until: Instant) -> Result<Duration, RunFailure> {
    let left = until.checked_duration_since(Instant::now());
    left.filter(|left| !left.is_zero())
        .ok_or(RunFailure::Deadline)
}

/// Waits for a program that has closed its outputs, which it does at its end.
fn wait(child: &mut Child, until: Instant) -> Result<ExitStatus, RunFailure> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) => std::thread::sleep(left(until)?.min(Duration::from_millis(1))),
            Err(error) => {
                let errno = Errno::from_io_error(&error).unwrap_or(Errno::CHILD);
                return Err(RunFailure::Errno(errno));
            }
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
