//! Running processes: the only module that opens files and makes system calls.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Serialize;

use crate::stat::ProcStat;
use crate::{BootId, ProcKey, ProcessId, children, comm};

/// Whether a process is still running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    /// It is.
    Alive,
    /// It has ended, or belonged to another boot.
    Gone,
    /// It could not be examined.
    Unknown,
}

impl ProcKey {
    /// This process.
    pub fn current() -> io::Result<Self> {
        Self::read(std::process::id())
    }

    /// The process that has this pid now, perhaps as a zombie.
    pub fn read(pid: u32) -> io::Result<Self> {
        stat(pid, |stat| stat.key(pid))
    }

    /// Whether it is running. A zombie is gone.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        let is_here = |stat: &ProcStat<'_>| stat.key(self.pid) == *self && !stat.has_ended();
        match stat(self.pid, is_here) {
            Ok(true) => Liveness::Alive,
            Ok(false) => Liveness::Gone,
            Err(error) if is_gone(&error) => Liveness::Gone,
            Err(_unreadable) => Liveness::Unknown,
        }
    }

    /// Whether it is known to be running.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.liveness() == Liveness::Alive
    }

    /// A pidfd of exactly this process; an error of kind `NotFound` once it was reaped, even if its
    /// pid was reused.
    pub fn open_pidfd(&self) -> io::Result<OwnedFd> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(absent)?;
        // It has its pid now, so it had it when the pidfd was opened.
        match Self::read(self.pid) {
            Ok(now) if now == *self => Ok(pidfd),
            Ok(_another) => Err(io::ErrorKind::NotFound.into()),
            Err(error) if is_gone(&error) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error),
        }
    }

    /// Sends a signal to exactly this process; an error of kind `NotFound` once it was reaped.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(self.open_pidfd()?, signal).map_err(absent)
    }
}

impl ProcessId {
    /// This process.
    pub fn current() -> io::Result<Self> {
        Self::read(std::process::id())
    }

    /// The process that has this pid now, perhaps as a zombie.
    pub fn read(pid: u32) -> io::Result<Self> {
        Ok(ProcKey::read(pid)?.in_boot(current_boot()?))
    }

    /// Whether it is running. A zombie is gone, and so is every process of another boot.
    #[must_use]
    pub fn liveness(&self) -> Liveness {
        match current_boot() {
            Ok(boot) if boot == self.boot => self.key().liveness(),
            Ok(_another) => Liveness::Gone,
            Err(_unreadable) => Liveness::Unknown,
        }
    }

    /// Whether it is known to be running.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.liveness() == Liveness::Alive
    }

    /// A pidfd of exactly this process; an error of kind `NotFound` once it was reaped, even if its
    /// pid was reused.
    pub fn open_pidfd(&self) -> io::Result<OwnedFd> {
        self.key_now()?.open_pidfd()
    }

    /// Sends a signal to exactly this process; an error of kind `NotFound` once it was reaped.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        self.key_now()?.signal(signal)
    }

    /// The process within the current boot.
    fn key_now(&self) -> io::Result<ProcKey> {
        let is_now = current_boot()? == self.boot;
        is_now
            .then(|| self.key())
            .ok_or(io::ErrorKind::NotFound.into())
    }
}

/// The boot that is running.
pub fn current_boot() -> io::Result<BootId> {
    static BOOT: OnceLock<BootId> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(*boot);
    }
    let bytes = fs::read("/proc/sys/kernel/random/boot_id")?;
    let boot =
        BootId::parse(&bytes).map_err(|bad| io::Error::new(io::ErrorKind::InvalidData, bad))?;
    Ok(*BOOT.get_or_init(|| boot))
}

/// What `read` takes from the process's stat line.
pub fn stat<T>(pid: u32, read: impl FnOnce(&ProcStat<'_>) -> T) -> io::Result<T> {
    let bytes = fs::read(format!("/proc/{pid}/stat"))?;
    let stat = ProcStat::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    Ok(read(&stat))
}

/// Whether its first thread sleeps: it neither runs nor waits for the disk.
#[must_use]
pub fn is_asleep(pid: u32) -> bool {
    stat(pid, |stat| stat.state == b'S').unwrap_or(false)
}

/// Every pid, in the order of the kernel; none if `/proc` cannot be read.
pub fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Its name, for people; `None` if the process is gone.
#[must_use]
pub fn name(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(comm::name(&bytes)).into_owned())
}

/// The children of all its threads, including zombies; none if the process is gone.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    // A thread that has just ended has left its children to another one.
    let lists = threads.filter_map(|thread| fs::read(thread.path().join("children")).ok());
    lists.flat_map(|list| children::pids(&list)).collect()
}

/// No such process: before or while its file was read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::SRCH)
}

fn absent(errno: Errno) -> io::Error {
    match errno {
        Errno::SRCH => io::ErrorKind::NotFound.into(),
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn we_are_alive_and_another_start_or_boot_is_not() {
        let own = ProcessId::current().unwrap();
        assert_eq!((own.liveness(), own.is_alive()), (Liveness::Alive, true));
        assert_eq!(own.to_string().parse(), Ok(own));
        let later = ProcessId {
            start: own.start + 1,
            ..own
        };
        let boot = "00000000-0000-0000-0000-000000000000".parse().unwrap();
        for stranger in [later, ProcessId { boot, ..own }] {
            assert_eq!(stranger.liveness(), Liveness::Gone);
            let error = stranger.open_pidfd().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
    }

    #[test]
    fn only_the_very_process_is_signalled() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = ProcessId::read(child.id()).unwrap();
        let stranger = ProcessId {
            start: id.start + 1,
            ..id
        };
        let error = stranger.signal(Signal::KILL).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(id.is_alive(), "it was not hit");
        id.signal(Signal::KILL).unwrap();
        let pidfd = id.open_pidfd().unwrap();
        let mut fds = [rustix::event::PollFd::new(
            &pidfd,
            rustix::event::PollFlags::IN,
        )];
        rustix::event::poll(&mut fds, None).unwrap();
        assert!(!id.is_alive(), "a zombie");
        assert!(id.open_pidfd().is_ok(), "a zombie keeps its pid");
        child.wait().unwrap();
        assert_eq!(id.liveness(), Liveness::Gone);
        let error = id.signal(Signal::KILL).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn children_and_names_are_read() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(children(std::process::id()).contains(&child.id()));
        assert!(pids().any(|pid| pid == child.id()));
        assert!(name(child.id()).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(children(child.id()).is_empty() && name(child.id()).is_none());
    }
}
