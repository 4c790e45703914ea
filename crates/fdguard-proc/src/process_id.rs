//! Identifies a process. A bare pid may be reused a moment later: with the start time it names one
//! process of a boot, and with the boot one process of all times.
//!
//! Pids belong to a pid namespace: identities must not be passed between containers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::BootId;

/// A process of the current boot, or of the boot that a document is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcKey {
    /// The process number.
    pub pid: u32,
    /// Start time in clock ticks after boot, as the kernel counts it.
    pub start_ticks: u64,
}

/// A process, for what outlives a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The boot.
    pub boot: BootId,
    /// The process number.
    pub pid: u32,
    /// Start time in clock ticks after boot.
    #[serde(rename = "started")]
    pub start: u64,
}

impl ProcKey {
    /// Whether it started later. Two may start within one tick: then the pids differ.
    #[must_use]
    pub fn is_newer_than(self, other: Self) -> bool {
        self.start_ticks > other.start_ticks
            || (self.start_ticks == other.start_ticks && self.pid != other.pid)
    }

    /// This process in this boot.
    #[must_use]
    pub fn in_boot(self, boot: BootId) -> ProcessId {
        ProcessId {
            boot,
            pid: self.pid,
            start: self.start_ticks,
        }
    }
}

impl ProcessId {
    /// The process within its boot.
    #[must_use]
    pub fn key(&self) -> ProcKey {
        ProcKey {
            pid: self.pid,
            start_ticks: self.start,
        }
    }
}

/// `BOOT:PID:START`.
impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.boot, self.pid, self.start)
    }
}

/// The text is not a process identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a process identity: expected BOOT:PID:START")]
pub struct BadProcessId;

impl FromStr for ProcessId {
    type Err = BadProcessId;

    /// Journals of earlier versions have a fourth part, which proved nothing more.
    fn from_str(text: &str) -> Result<Self, BadProcessId> {
        let parse = || {
            let mut parts = text.split(':');
            let boot = parts.next()?.parse().ok()?;
            let pid = parts.next()?.parse().ok()?;
            let start = parts.next()?.parse().ok()?;
            let is_whole = parts.nth(1).is_none();
            is_whole.then_some(Self { boot, pid, start })
        };
        parse().ok_or(BadProcessId)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BadProcessId, ProcKey, ProcessId};

    const BOOT: &str = "3f2a9c04-0b1d-4e5f-8a6b-00c7d8e9fa0b";

    #[test]
    fn identities_of_earlier_versions_are_read() {
        let id: ProcessId = format!("{BOOT}:7:70").parse().unwrap();
        assert_eq!((id.pid, id.start), (7, 70));
        assert_eq!(id.key().in_boot(id.boot), id);
        for inode in ["-", "5213"] {
            assert_eq!(format!("{id}:{inode}").parse(), Ok(id));
        }
    }

    #[test]
    fn texts_that_are_no_identity() {
        for text in [
            "",
            "a:1:2",
            "B:1",
            ":1:2",
            "B:x:2",
            "B:1:x",
            "B:-1:2",
            "B:1:2:3:4",
        ] {
            let text = text.replace('B', BOOT);
            assert_eq!(text.parse::<ProcessId>(), Err(BadProcessId), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_identity_comes_back(pid: u32, start_ticks: u64, text: String) {
            let id = ProcKey { pid, start_ticks }.in_boot(BOOT.parse().unwrap());
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            let _ = text.parse::<ProcessId>();
        }
    }
}
