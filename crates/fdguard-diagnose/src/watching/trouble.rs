//! Why a sample can fail, and what that means for the watch.

use fdguard_core::Gap;
use fdguard_probe::Error as ProbeError;

/// Why a sample failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The process ended.
    Ended,
    /// fdguard has no room; this says nothing about the process.
    Ours,
    /// Permission was lost.
    Denied,
}

/// What an error of the probe means for a watch.
#[must_use]
pub fn trouble_of(error: &ProbeError) -> Trouble {
    match error {
        ProbeError::NoSuchProcess(_) | ProbeError::Vanished(_) | ProbeError::Zombie { .. } => {
            Trouble::Ended
        }
        ProbeError::Io { source, .. } if is_lack_of_room(source) => Trouble::Ours,
        _ => Trouble::Denied,
    }
}

fn is_lack_of_room(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let number = Errno::from_io_error(error);
    matches!(number, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

impl Trouble {
    /// The gap that it causes.
    pub(super) fn gap(self, error: &ProbeError) -> Option<Gap> {
        let source = std::error::Error::source(error);
        let why = source.map_or_else(|| error.to_string(), ToString::to_string);
        let (what, remedy) = match self {
            Self::Ended => return None,
            Self::Ours => (
                "some samples",
                "raise fdguard's own limit (ulimit -n) or close files on the machine",
            ),
            Self::Denied => (
                "the kinds of descriptors, from some point on",
                "run as root; earlier samples are still evaluated, and counting continues",
            ),
        };
        Some(Gap::new(what, why, remedy))
    }
}
