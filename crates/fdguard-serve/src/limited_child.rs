//! A child of fdguard serve that examines a process. One that does not end is ended: a program that
//! hangs must not keep others from being examined.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fdguard_core::units::exact_seconds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Time beyond the length of the examination.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
/// Between the request to end and the end.
const FAREWELL: Duration = Duration::from_secs(5);
/// The most of its messages that is read.
const MOST_TEXT: u64 = 16 << 10;

/// How a child ended.
#[derive(Debug)]
pub(crate) struct ChildEnd {
    pub(crate) status: ExitStatus,
    /// What it wrote to its standard error.
    pub(crate) messages: String,
}

/// Runs a command to its end, at most for this long.
pub(crate) fn run(command: &mut Command, most: Duration) -> Result<ChildEnd, String> {
    let failed = |error: std::io::Error| error.to_string();
    let memory = memfd_create(c"fdguard-messages", MemfdFlags::CLOEXEC);
    let mut messages = File::from(memory.map_err(|error| error.to_string())?);
    let shared = messages.try_clone().map_err(failed)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(shared)
        // Its own children end with it.
        .process_group(0)
        .spawn();
    let mut child = child.map_err(failed)?;
    let is_late = !has_ended(&child, most);
    if is_late {
        signal(&child, Signal::TERM);
        has_ended(&child, FAREWELL);
        signal(&child, Signal::KILL);
    }
    let status = child.wait().map_err(failed)?;
    if is_late {
        let most = exact_seconds(most);
        return Err(format!("it did not end within {most} and was killed"));
    }
    let mut text = Vec::new();
    let read = messages
        .seek(SeekFrom::Start(0))
        .and_then(|_| messages.take(MOST_TEXT).read_to_end(&mut text));
    read.map_err(failed)?;
    Ok(ChildEnd {
        status,
        messages: String::from_utf8_lossy(&text).into_owned(),
    })
}

/// Waits for the end of a child; `false` if it still runs after this time.
fn has_ended(child: &Child, most: Duration) -> bool {
    let Ok(handle) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        // Without it there is no limit, as on kernels before 5.3.
        return true;
    };
    let end = Instant::now() + most;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return true;
        };
        match poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            polled => return polled != Ok(0),
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    // It may have ended by now.
    let _gone = kill_process_group(Pid::from_child(child), signal);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::run;

    fn shell(script: &str, most: Duration) -> Result<super::ChildEnd, String> {
        run(Command::new("sh").args(["-c", script]), most)
    }

    #[test]
    fn a_child_that_ends_is_reported_with_its_messages() {
        let end = shell("echo why >&2; exit 3", Duration::from_secs(600)).unwrap();
        assert_eq!((end.status.code(), &*end.messages), (Some(3), "why\n"));
    }

    #[test]
    fn a_child_that_hangs_is_killed_with_its_own_children() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        // A grandchild has the fifo open; the end of file shows that it is gone.
        let path = fifo.display();
        let script = format!("trap '' TERM; sleep 1000 > {path}; sleep 1000");
        let reader = std::thread::spawn(move || std::fs::read(fifo).unwrap());
        let why = shell(&script, Duration::from_millis(200)).unwrap_err();
        assert_eq!(why, "it did not end within 0.2 s and was killed");
        assert!(reader.join().unwrap().is_empty());
    }
}
