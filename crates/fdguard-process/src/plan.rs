//! The plan of a start.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The first number of the descriptors that a program is given besides its standard streams.
pub const FIRST_HANDED: u32 = 3;

/// Everything that a start needs, prepared before the fork.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program and its arguments; the program is searched for as `execvp` does.
    pub command: Vec<OsString>,
    /// Its whole environment. fdguard controls `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`:
    /// they are set if a named descriptor is passed, otherwise absent.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory; the owner's if absent. A relative program is resolved from there.
    pub dir: Option<PathBuf>,
    /// Its descriptors 0, 1 and 2; the owner's if absent.
    pub stdio: [Option<Arc<OwnedFd>>; 3],
    /// The descriptors that it gets from number 3 on: named ones in this order, then unnamed ones;
    /// everything else is closed.
    pub handed: Vec<InheritedFd>,
    /// The soft limit of descriptors that it starts with, capped at the hard limit.
    pub soft_limit: Option<u64>,
    /// The group it belongs to for terminal signals.
    pub group: SessionKind,
    /// Try a delegated cgroup.
    pub cgroup: bool,
    /// Its standard input becomes the controlling terminal of its session. Needs
    /// [`SessionKind::Session`] and a terminal there.
    pub terminal: bool,
    /// What it and its descendants may use.
    pub limits: TreeLimits,
}

impl Plan {
    /// This command in a new session, in the current directory, with the owner's streams and
    /// without limits.
    #[must_use]
    pub fn new(command: Vec<OsString>, environment: Vec<(OsString, OsString)>) -> Self {
        Self {
            command,
            environment,
            dir: None,
            stdio: [None, None, None],
            handed: Vec::new(),
            soft_limit: None,
            group: SessionKind::Session,
            cgroup: false,
            terminal: false,
            limits: TreeLimits::default(),
        }
    }

    /// The numbers that the passed descriptors have in the program, in the order of `handed`.
    #[must_use]
    pub fn numbers(&self) -> Vec<u32> {
        let named = self.handed.iter().filter(|handed| handed.name.is_some());
        let mut next_named = FIRST_HANDED;
        let mut next_unnamed = (FIRST_HANDED..).nth(named.count()).unwrap_or(FIRST_HANDED);
        let number = |handed: &InheritedFd| {
            let next = if handed.name.is_some() {
                &mut next_named
            } else {
                &mut next_unnamed
            };
            let number = *next;
            *next += 1;
            number
        };
        self.handed.iter().map(number).collect()
    }
}

/// What a program and its descendants may use; an absent limit is inherited from fdguard.
/// [`Tree::enforced`](crate::tree::Tree::enforced) reports how each is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeLimits {
    /// Bytes of memory: of all processes together in a cgroup, otherwise of each process's data.
    pub memory: Option<u64>,
    /// CPU time of each process in whole seconds, rounded up. A process that exceeds it gets XCPU,
    /// and KILL a second later.
    pub cpu: Option<Duration>,
    /// Processes at a time.
    pub processes: Option<u32>,
    /// Descriptors of each process, soft and hard.
    pub descriptors: Option<u64>,
}

/// A descriptor that is passed to the program.
#[derive(Clone, Debug)]
pub struct InheritedFd {
    /// The owner's descriptor.
    pub fd: Arc<OwnedFd>,
    /// Its name in `LISTEN_FDNAMES`; an unnamed one is not counted in `LISTEN_FDS` and comes after
    /// the named ones.
    pub name: Option<String>,
}

/// The session and group of the new program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// A session of its own: it has no terminal.
    Session,
    /// A new group in the owner's session.
    Own,
    /// The owner's group.
    Same,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_without_a_name_stand_behind_those_with_one() {
        let null = Arc::new(OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        let handed = |name: Option<&str>| InheritedFd {
            fd: Arc::clone(&null),
            name: name.map(str::to_owned),
        };
        let mut plan = Plan::new(Vec::new(), Vec::new());
        plan.handed = vec![
            handed(None),
            handed(Some("a")),
            handed(None),
            handed(Some("b")),
        ];
        assert_eq!(plan.numbers(), [5, 3, 6, 4]);
    }
}
