//! Process identity of an entry: boot id, pid and start time, as plain data.
//!
//! Pids belong to the pid namespace of the writer: a registry must not be shared between
//! containers.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::OnceLock;

use fdguard_proc::stat::ProcStat;
use serde::{Deserialize, Serialize};

/// A process. A pid alone is reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerId {
    /// The kernel's id of the boot.
    pub boot: String,
    /// The number.
    pub pid: u32,
    /// Its start, in ticks since the boot.
    pub started: u64,
}

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

impl OwnerId {
    /// The identity of the calling process.
    pub fn own() -> io::Result<Self> {
        Self::read(std::process::id())
    }

    /// The identity of the process that has this pid now.
    pub fn read(pid: u32) -> io::Result<Self> {
        let bytes = std::fs::read(format!("/proc/{pid}/stat"))?;
        let stat = ProcStat::parse(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self {
            boot: boot()?.to_owned(),
            pid,
            started: stat.start_ticks,
        })
    }

    /// Whether it is running. A zombie counts as gone.
    #[must_use]
    pub fn alive(&self) -> Liveness {
        match boot() {
            Ok(boot) if boot == self.boot => {}
            Ok(_other) => return Liveness::Gone,
            Err(_unreadable) => return Liveness::Unknown,
        }
        match std::fs::read(format!("/proc/{}/stat", self.pid)) {
            Ok(bytes) => {
                ProcStat::parse(&bytes).map_or(Liveness::Unknown, |stat| self.judge(&stat))
            }
            Err(error) if is_absent(&error) => Liveness::Gone,
            Err(_unreadable) => Liveness::Unknown,
        }
    }

    fn judge(&self, stat: &ProcStat<'_>) -> Liveness {
        // The first thread of a process may exit before the others: that is not a zombie yet.
        let has_ended = stat.is_zombie() && stat.threads <= 1;
        if stat.start_ticks == self.started && !has_ended {
            Liveness::Alive
        } else {
            Liveness::Gone
        }
    }
}

/// No such process: before or while its file was read.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn boot() -> io::Result<&'static str> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot);
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BOOT.get_or_init(|| text.trim().to_owned()))
}

/// `BOOT:PID:START`.
impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.boot, self.pid, self.started)
    }
}

/// The text is not a process identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a process identity (BOOT:PID:START)")]
pub struct BadOwnerId;

impl FromStr for OwnerId {
    type Err = BadOwnerId;

    fn from_str(text: &str) -> Result<Self, BadOwnerId> {
        let mut parts = text.rsplitn(3, ':');
        let mut next = || parts.next().ok_or(BadOwnerId);
        let (started, pid, boot) = (next()?, next()?, next()?);
        if boot.is_empty() {
            return Err(BadOwnerId);
        }
        Ok(Self {
            boot: boot.to_owned(),
            pid: pid.parse().map_err(|_no_number| BadOwnerId)?,
            started: started.parse().map_err(|_no_number| BadOwnerId)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn an_identity_is_written_and_read() {
        let own = OwnerId::own().unwrap();
        assert_eq!(own.to_string().parse(), Ok(own.clone()));
        for text in ["", "a:1", ":1:2", "a:x:2", "a:1:x", "a:-1:2"] {
            assert_eq!(text.parse::<OwnerId>(), Err(BadOwnerId), "{text}");
        }
    }

    #[test]
    fn another_start_another_boot_and_an_ended_process_are_gone() {
        let own = OwnerId::own().unwrap();
        assert_eq!(own.alive(), Liveness::Alive);
        let mut later = own.clone();
        later.started += 1;
        assert_eq!(later.alive(), Liveness::Gone);
        let mut elsewhere = own;
        elsewhere.boot = "another".to_owned();
        assert_eq!(elsewhere.alive(), Liveness::Gone);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let identity = OwnerId::read(child.id()).unwrap();
        assert_eq!(identity.alive(), Liveness::Alive);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(identity.alive(), Liveness::Gone);
    }
}
