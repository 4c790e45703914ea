//! Pids of another pid namespace: an attached process in a container names its files by the pids
//! that it sees.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fdguard_proc::process::pids;
use fdguard_proc::status::ProcStatus;

/// The pids of one process's namespace, as fdguard sees them.
#[derive(Debug)]
pub(crate) enum PidNames {
    /// fdguard is in the same namespace.
    Same,
    /// It is in another one, with this link.
    Other {
        namespace: PathBuf,
        /// Those that were found, by their number inside.
        known: Mutex<HashMap<u32, u32>>,
    },
}

impl PidNames {
    /// Those of this process.
    pub(crate) fn of(pid: u32) -> Self {
        let link = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/pid")).ok();
        let own = link("self");
        match link(&pid.to_string()) {
            Some(namespace) if Some(&namespace) != own.as_ref() => Self::Other {
                namespace,
                known: Mutex::default(),
            },
            _ => Self::Same,
        }
    }

    pub(crate) fn is_same(&self) -> bool {
        matches!(self, Self::Same)
    }

    /// The pid outside for one inside; `None` if the process ended before it was found.
    pub(crate) fn outside(&self, inside: u32) -> Option<u32> {
        let Self::Other { namespace, known } = self else {
            return Some(inside);
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = known.get(&inside) {
            return Some(*pid);
        }
        let is_it = |pid: &u32| {
            let link = std::fs::read_link(format!("/proc/{pid}/ns/pid"));
            let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
            link.is_ok_and(|link| link == *namespace)
                && ProcStatus::parse(&status).ns_pid == Some(inside)
        };
        let found = pids().find(is_it)?;
        known.insert(inside, found);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::PidNames;

    #[test]
    fn in_the_same_namespace_a_pid_is_itself() {
        let names = PidNames::of(std::process::id());
        assert!(names.is_same());
        assert_eq!(names.outside(7), Some(7));
    }
}
