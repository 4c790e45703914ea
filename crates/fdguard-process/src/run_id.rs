//! The `fdguard run` that a process belongs to: `FDGUARD_RUN` in its environment.

use std::fmt;
use std::str::FromStr;

/// The variable that every process of a run inherits.
pub const VARIABLE: &str = "FDGUARD_RUN";

/// One run: the supervisor's process, by pid and start time, and the name of the service. Written
/// `PID.START:NAME`.
///
/// The id alone shows whether the run is still going on; no registry is needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunId {
    /// The supervisor.
    pub pid: u32,
    /// When it started, in clock ticks after boot.
    pub start_ticks: u64,
    /// The service.
    pub service: String,
}

/// The text is not a [`RunId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a run id: expected PID.START:NAME")]
pub struct NoRunId;

impl RunId {
    /// The run of this process, for a service of this name.
    #[must_use]
    pub fn own(service: &str) -> Option<Self> {
        let pid = std::process::id();
        Some(Self {
            pid,
            start_ticks: alive_since(pid)?,
            service: service.to_owned(),
        })
    }

    /// Whether its supervisor is alive. Only for runs in the same PID namespace: elsewhere the pid
    /// means another process.
    #[must_use]
    pub fn is_running(&self) -> bool {
        alive_since(self.pid) == Some(self.start_ticks)
    }
}

/// When a process started, if it exists and is not a zombie.
fn alive_since(pid: u32) -> Option<u64> {
    since(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

fn since(stat: &[u8]) -> Option<u64> {
    // The name may contain anything, including parentheses: the fields start after the last one.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = fields.next()?;
    let is_dead = matches!(state, "Z" | "X" | "x");
    fields.nth(18)?.parse().ok().filter(|_| !is_dead)
}

impl FromStr for RunId {
    type Err = NoRunId;

    fn from_str(text: &str) -> Result<Self, NoRunId> {
        let parse = || {
            let (process, service) = text.split_once(':')?;
            let (pid, start) = process.split_once('.')?;
            Some(Self {
                pid: pid.parse().ok()?,
                start_ticks: start.parse().ok()?,
                service: service.to_owned(),
            })
        };
        parse().ok_or(NoRunId)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.pid, self.start_ticks, self.service)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{RunId, since};

    #[test]
    fn our_own_run_is_running_and_one_before_it_is_not() {
        let own = RunId::own("web").unwrap();
        assert!(own.is_running());
        let start_ticks = own.start_ticks - 1;
        let before = RunId { start_ticks, ..own };
        assert!(!before.is_running(), "the pid was used again");
    }

    #[test]
    fn a_zombie_runs_nothing() {
        let alive = b"7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(since(alive), Some(4711));
        let zombie = b"7 (a) b) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        assert_eq!(since(zombie), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(pid: u32, start_ticks: u64, service in "[^\\x00]{0,20}") {
            let id = RunId { pid, start_ticks, service };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn any_text_is_survived(text: String, bytes: Vec<u8>) {
            drop((text.parse::<RunId>(), since(&bytes)));
        }
    }
}
