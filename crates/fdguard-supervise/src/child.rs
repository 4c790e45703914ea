//! A helper program that may take only so long, and leaves nothing behind.
//!
//! It inherits the signals that are blocked in the supervisor (the standard library hands them on): it is ended by KILL, which nobody can block.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::turn::{Ready, Wants};

/// Without a handle of the process its end is looked for this often.
const OTHERWISE_EVERY: Duration = Duration::from_millis(100);
/// Of what it complains about, the end is kept.
const KEPT: usize = 4096;

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this status.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It was ended: the time was up.
    TimeUp,
}

/// A program in a group of its own, and the time it has.
#[derive(Debug)]
pub(crate) struct Bounded {
    child: Child,
    pid: Pid,
    /// Readable at its end; absent where the host has no room for one.
    handle: Option<OwnedFd>,
    errors: Option<ChildStderr>,
    said: Vec<u8>,
    deadline: Instant,
    next: Instant,
    reaped: bool,
}

impl Bounded {
    /// Starts it with nothing to read and nowhere to write. `null` is held open for the time when the host's table is full: another
    /// number for an open file needs no place there.
    pub(crate) fn start(
        command: &mut Command,
        null: &OwnedFd,
        now: Instant,
        within: Duration,
    ) -> io::Result<Self> {
        command
            .stdin(null.try_clone()?)
            .stdout(null.try_clone()?)
            .stderr(Stdio::piped())
            .process_group(0);
        let child = match command.spawn() {
            // No room for a pipe: then nobody hears what it says.
            Err(error) if is_full(&error) => command.stderr(null.try_clone()?).spawn()?,
            spawned => spawned?,
        };
        let pid = Pid::from_child(&child);
        let mut bounded = Self {
            pid,
            handle: rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok(),
            errors: None,
            said: Vec::new(),
            deadline: now + within,
            next: now,
            reaped: false,
            child,
        };
        bounded.errors = bounded.child.stderr.take();
        if let Some(errors) = &bounded.errors {
            rustix::io::ioctl_fionbio(errors, true)?;
        }
        Ok(bounded)
    }

    pub(crate) fn wants<'f>(&'f self, wants: &mut Wants<'f>) {
        if let Some(errors) = &self.errors {
            wants.read(errors.as_fd());
        }
        match &self.handle {
            Some(handle) => wants.read(handle.as_fd()),
            None => wants.until(self.next),
        }
        wants.until(self.deadline);
    }

    /// Its end, once.
    pub(crate) fn turn(&mut self, now: Instant, _ready: &Ready) -> Option<Ended> {
        self.next = now + OTHERWISE_EVERY;
        self.listen();
        if self.has_ended() {
            self.listen();
            return Some(self.end());
        }
        if now < self.deadline {
            return None;
        }
        self.end();
        Some(Ended::TimeUp)
    }

    /// The last line that it complained with.
    pub(crate) fn last_words(&self) -> String {
        let text = String::from_utf8_lossy(&self.said);
        let mut lines = text.lines().rev().map(str::trim);
        lines
            .find(|line| !line.is_empty())
            .unwrap_or_default()
            .to_owned()
    }

    fn listen(&mut self) {
        let Some(errors) = &mut self.errors else {
            return;
        };
        let mut buffer = [0; 1024];
        loop {
            match errors.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    self.said.extend_from_slice(&buffer[..length]);
                    let surplus = self.said.len().saturating_sub(KEPT);
                    self.said.drain(..surplus);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.errors = None;
    }

    /// Not waited for yet: until then its number, and that of its group, are nobody else's.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(
            rustix::process::waitid(WaitId::Pid(self.pid), options),
            Ok(None)
        )
    }

    /// Ends the whole group and waits, which after a KILL is a matter of moments.
    fn end(&mut self) -> Ended {
        if self.reaped {
            return Ended::TimeUp;
        }
        // Gone already, then.
        let _gone = rustix::process::kill_process_group(self.pid, Signal::KILL);
        self.reaped = true;
        match self.child.wait() {
            Ok(status) => status.code().map_or_else(
                || Ended::Signal(status.signal().unwrap_or_default()),
                Ended::Code,
            ),
            Err(_) => Ended::TimeUp,
        }
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        self.end();
    }
}

fn is_full(error: &io::Error) -> bool {
    let full = [rustix::io::Errno::NFILE, rustix::io::Errno::MFILE];
    error
        .raw_os_error()
        .is_some_and(|number| full.iter().any(|one| one.raw_os_error() == number))
}

/// Nothing to read and nowhere to write.
pub(crate) fn null() -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(
        "/dev/null",
        flags,
        rustix::fs::Mode::empty(),
    )?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::{Bounded, Ended, null};
    use crate::turn::Wants;

    fn shell(script: &str, within: Duration) -> (Ended, String) {
        let null = null().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let mut bounded = Bounded::start(&mut command, &null, Instant::now(), within).unwrap();
        loop {
            let mut wants = Wants::default();
            bounded.wants(&mut wants);
            let ready = wants.wait().unwrap();
            if let Some(ended) = bounded.turn(Instant::now(), &ready) {
                return (ended, bounded.last_words());
            }
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn its_end_and_its_last_words_are_told() {
        assert_eq!(shell("exit 3", LONG), (Ended::Code(3), String::new()));
        let (ended, said) = shell("echo no room >&2; echo >&2; kill -TERM $$", LONG);
        assert_eq!((ended, said.as_str()), (Ended::Signal(15), "no room"));
    }

    #[test]
    fn a_flood_of_complaints_does_not_fill_the_memory_or_stop_it() {
        let script = "i=0; while [ $i -lt 5000 ]; do echo 'a line of some length that says nothing' >&2; i=$((i+1)); done; echo last >&2";
        assert_eq!(shell(script, LONG), (Ended::Code(0), "last".to_owned()));
    }

    #[test]
    fn it_is_ended_with_its_children_when_the_time_is_up() {
        let started = Instant::now();
        let (ended, _) = shell("sleep 600 & sleep 600", Duration::from_millis(200));
        assert_eq!(ended, Ended::TimeUp);
        assert!(started.elapsed() < LONG);
    }

    #[test]
    fn what_it_leaves_in_its_group_ends_with_it() {
        // The one that is left holds our pipe: were it not ended, the pipe would never come to its end.
        let started = Instant::now();
        assert_eq!(shell("sleep 600 & exit 0", LONG).0, Ended::Code(0));
        assert!(started.elapsed() < LONG);
    }
}
