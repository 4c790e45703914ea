//! A program that fdguard has started, and may borrow for a moment while it waits for its end.
//!
//! While one thread traces a child, the kernel shows every stop of it to all threads that wait for
//! it, and the library's own wait takes a stop for the end. So the end is looked at before it is
//! taken.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStderr, ChildStdout, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

/// How long a wait lasts before the child is looked at again, should its end be missed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same where the kernel does not tell the end.
const LOOK: Duration = Duration::from_millis(5);

/// A child whose end is taken once.
#[derive(Debug)]
pub(crate) struct OwnChild {
    child: Child,
    status: Option<ExitStatus>,
}

impl OwnChild {
    pub(crate) fn new(child: Child) -> Self {
        Self {
            child,
            status: None,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output and standard error, if they are pipes; returned once.
    pub(crate) fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        self.child.stdout.take().zip(self.child.stderr.take())
    }

    /// A descriptor that becomes readable when it ends.
    pub(crate) fn handle(&self) -> Option<OwnedFd> {
        rustix::process::pidfd_open(self.pid(), PidfdFlags::empty()).ok()
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() && self.has_ended()? {
            self.status = Some(self.child.wait()?);
        }
        Ok(self.status)
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let handle = self.handle();
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(status);
            }
            match &handle {
                Some(handle) => {
                    let mut fds = [PollFd::new(handle, PollFlags::IN)];
                    let timeout = Timespec::try_from(LOOK_AGAIN).unwrap_or_default();
                    // However it returns, the child is looked at.
                    let _woken = poll(&mut fds, Some(&timeout));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }

    /// Sends it a signal, unless it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // Not yet waited for, so the pid is still its own.
        if self.try_wait()?.is_none() {
            rustix::process::kill_process(self.pid(), signal)?;
        }
        Ok(())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether it has ended. Neither an end nor a stop is taken.
    fn has_ended(&self) -> io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let seen = rustix::process::waitid(WaitId::Pid(self.pid()), options)?;
        Ok(seen.is_some_and(|seen| seen.exited() || seen.killed() || seen.dumped()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use fdguard_attach::Target;

    use super::OwnChild;

    /// A child that waits for the end of its input, which is returned.
    fn start() -> (OwnChild, std::process::ChildStdin) {
        let mut child = Command::new("sh")
            .args(["-c", "echo READY; read line; exit 7"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert_eq!(line, "READY\n");
        let input = child.stdin.take().unwrap();
        (OwnChild::new(child), input)
    }

    #[test]
    fn a_stop_of_a_borrowed_child_is_not_its_end() {
        let (mut child, input) = start();
        let pid = child.id();
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let target = Target::examine(pid).unwrap();
                for _call in 0..20 {
                    // It is stopped several times, whether or not there is such a library.
                    target.call(b"no library", c"none", b"").unwrap_err();
                }
                is_done.store(true, Ordering::Relaxed);
            });
            while !is_done.load(Ordering::Relaxed) {
                assert_eq!(child.try_wait().unwrap(), None);
            }
        });
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(7));
    }
}
