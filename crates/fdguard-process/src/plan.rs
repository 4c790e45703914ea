//! The plan of a start.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where the descriptors begin that a program is given besides its standard streams.
pub const FIRST_HANDED: u32 = 3;

/// Everything that a start needs, prepared before the fork.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program and its words; the program is looked for as `execvp` does.
    pub command: Vec<OsString>,
    /// Its whole environment. `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES` are ours: they are
    /// set when a named descriptor is handed, else absent.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory; the owner's if absent. A relative program is resolved from there.
    pub dir: Option<PathBuf>,
    /// Its descriptors 0, 1 and 2; the owner's if absent.
    pub stdio: [Option<Arc<OwnedFd>>; 3],
    /// What it gets from number 3 on: those with a name in this order, then those without;
    /// everything else is closed.
    pub handed: Vec<InheritedFd>,
    /// The soft limit of descriptors that it starts with, at most the hard limit.
    pub soft_limit: Option<u64>,
    /// The group it belongs to for terminal signals.
    pub group: SessionKind,
    /// Try a delegated cgroup.
    pub cgroup: bool,
    /// Its standard input becomes the terminal that controls its session. Needs [`Group::Session`]
    /// and a terminal there.
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

    /// The numbers that the handed descriptors have in the program, in the order of `handed`.
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

/// What a program and its descendants may use; absent is as we may. Who sees to each is told by
/// [`Tree::enforced`](crate::tree::Tree::enforced).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeLimits {
    /// Bytes of memory: of all together in a cgroup, else of each process' data.
    pub memory: Option<u64>,
    /// Time on a core, of each process; whole seconds, rounded up. Who uses them gets XCPU, and
    /// KILL a second later.
    pub cpu: Option<Duration>,
    /// Processes at a time.
    pub processes: Option<u32>,
    /// Descriptors of each process, soft and hard.
    pub descriptors: Option<u64>,
}

/// A descriptor that the program is given.
#[derive(Clone, Debug)]
pub struct InheritedFd {
    /// The owner's.
    pub fd: Arc<OwnedFd>,
    /// Its name in `LISTEN_FDNAMES`; one that is absent is not counted in `LISTEN_FDS` and stands
    /// behind those that are.
    pub name: Option<String>,
}

/// The new program's place among sessions and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    /// A session of its own: it has no terminal.
    Session,
    /// A new group in the owner's session.
    Own,
    /// The owner's.
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
