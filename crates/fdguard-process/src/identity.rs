//! Identifies a process: the boot, the pid, the start time, and the inode of its pidfd if the
//! kernel gives each process its own.
//!
//! Pids are reused. Before signalling a process that is not an unreaped child, the caller compares
//! the identity with a pidfd open, so that the compared process is the signalled one.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::fs::{fstat, fstatfs};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::sys;

/// The magic number of pidfs (Linux 6.9): only there does every process have an inode number of its
/// own.
const PIDFS: u64 = 0x5049_4446;

/// Identifies a process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    boot: String,
    pid: u32,
    started: u64,
    pidfd_inode: Option<u64>,
}

impl ProcessId {
    /// The process that has this pid now.
    pub fn read(pid: u32) -> io::Result<Self> {
        Self::opened(pid).map(|(identity, _)| identity)
    }

    /// A process of this boot with this start time.
    pub(crate) fn known(pid: u32, started: u64) -> Option<Self> {
        Some(Self {
            boot: boot().ok()?.to_owned(),
            pid,
            started,
            pidfd_inode: None,
        })
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its start time, in ticks since boot.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.started
    }

    /// Whether it still has its pid: not ended and reaped. A zombie matches.
    #[must_use]
    pub fn matches(&self) -> bool {
        Self::read(self.pid).is_ok_and(|now| self.is(&now))
    }

    fn is(&self, now: &Self) -> bool {
        // An inode that is unknown on either side proves nothing.
        let same_inode = match (self.pidfd_inode, now.pidfd_inode) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        same_inode && (&self.boot, self.pid, self.started) == (&now.boot, now.pid, now.started)
    }

    /// The identity, with a pidfd that was opened before anything was read and whose process still
    /// exists.
    fn opened(pid: u32) -> io::Result<(Self, OwnedFd)> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::NotFound)?;
        let pidfd = pidfd_open(number, PidfdFlags::empty())?;
        let stat = fs::read(format!("/proc/{pid}/stat"))?;
        let stat = Stat::parse(&stat).ok_or(io::ErrorKind::InvalidData)?;
        // Signal 0 checks that the process was not reaped meanwhile, so the values read are its
        // own.
        match sys::signal_pidfd(&pidfd, 0) {
            Ok(()) | Err(rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let identity = Self {
            boot: boot()?.to_owned(),
            pid,
            started: stat.started,
            pidfd_inode: inode(&pidfd),
        };
        Ok((identity, pidfd))
    }
}

/// Sends a signal to exactly this process; an error of kind `NotFound` if it is gone, even if its
/// pid was reused.
pub fn signal_checked(identity: &ProcessId, signal: i32) -> io::Result<()> {
    let gone = |error: io::Error| match error.raw_os_error() {
        Some(libc::ESRCH) => io::ErrorKind::NotFound.into(),
        _ => error,
    };
    let (now, pidfd) = ProcessId::opened(identity.pid).map_err(gone)?;
    if !identity.is(&now) {
        return Err(io::ErrorKind::NotFound.into());
    }
    sys::signal_pidfd(&pidfd, signal).map_err(|error| gone(error.into()))
}

fn inode(pidfd: impl AsFd) -> Option<u64> {
    let kind = fstatfs(&pidfd).ok()?.f_type;
    let is_pidfs = u64::try_from(kind).ok() == Some(PIDFS);
    is_pidfs.then(|| fstat(&pidfd).ok().map(|found| found.st_ino))?
}

fn boot() -> io::Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot);
    }
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BOOT.get_or_init(|| text.trim().to_owned()))
}

/// `BOOT:PID:START:INODE`, with `-` for an unknown inode.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:", self.boot, self.pid, self.started)?;
        match self.pidfd_inode {
            Some(inode) => write!(f, "{inode}"),
            None => f.write_str("-"),
        }
    }
}

/// The text is not an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a process identity: expected BOOT:PID:START:INODE")]
pub struct BadProcessId;

impl FromStr for ProcessId {
    type Err = BadProcessId;

    fn from_str(text: &str) -> Result<Self, BadProcessId> {
        let mut parts = text.split(':');
        let mut next = || parts.next().ok_or(BadProcessId);
        let (boot, pid, started, inode) = (next()?, next()?, next()?, next()?);
        let number = |text: &str| text.parse::<u64>().map_err(|_not_a_number| BadProcessId);
        let is_whole = parts.next().is_none() && !boot.is_empty();
        is_whole.then_some(()).ok_or(BadProcessId)?;
        Ok(Self {
            boot: boot.to_owned(),
            pid: pid.parse().map_err(|_not_a_number| BadProcessId)?,
            started: number(started)?,
            pidfd_inode: match inode {
                "-" => None,
                known => Some(number(known)?),
            },
        })
    }
}

/// The fields used from `/proc/PID/stat`. Parsing allocates nothing, because a keeper parses too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) threads: u32,
    pub(crate) started: u64,
}

impl Stat {
    /// The program's name may contain spaces and parentheses: the numbers start after the last one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().rposition(|byte| *byte == b')')?;
        let text = std::str::from_utf8(bytes.get(end + 1..)?).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        // Fields 3 and 4 are consumed; the threads are field 20, the start time is field 22.
        let threads = fields.nth(15)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        Some(Self {
            state,
            parent,
            threads,
            started,
        })
    }

    /// It is a zombie or nearly gone. If only the first thread of a process has ended, the process
    /// is alive.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    /// It is stopped by a signal or a tracer.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_trap() {
        let text = b"77 (a) R (b) S 5 77 77 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 123456 1 2 3\n";
        let stat = Stat::parse(text).unwrap();
        let expected = Stat {
            state: b'S',
            parent: 5,
            threads: 1,
            started: 123_456,
        };
        assert_eq!(stat, expected);
        assert_eq!(Stat::parse(b"77 (a"), None);
        assert_eq!(Stat::parse(b"77 (a) S 1"), None);
    }

    #[test]
    fn we_are_who_we_are() {
        let identity = ProcessId::read(std::process::id()).unwrap();
        assert!(identity.matches());
        let again: ProcessId = identity.to_string().parse().unwrap();
        assert_eq!(again, identity);
    }

    #[test]
    fn texts_that_are_no_identity() {
        for text in ["", "a:1:2", "a:1:2:3:4", "a:x:2:-", ":1:2:-", "a:1:2:x"] {
            assert_eq!(text.parse::<ProcessId>(), Err(BadProcessId), "{text}");
        }
    }

    #[test]
    fn another_process_with_the_same_number_is_not_signalled() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let identity = ProcessId::read(child.id()).unwrap();
        let mut stranger = identity.clone();
        stranger.started += 1;
        let error = signal_checked(&stranger, libc::SIGKILL).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut other_boot = identity.clone();
        other_boot.boot = "another".to_owned();
        assert!(signal_checked(&other_boot, libc::SIGKILL).is_err());
        assert!(identity.matches(), "it was not hit");
        signal_checked(&identity, libc::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!identity.matches());
        let error = signal_checked(&identity, libc::SIGKILL).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
