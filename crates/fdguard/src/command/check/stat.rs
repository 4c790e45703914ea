//! Processes as listed in `/proc`, including zombies.

use fdguard_core::Text;
use fdguard_proc::stat::ProcStat;
use fdguard_proc::{ProcKey, cmdline, environ, process};

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: u32,
    pub(super) key: ProcKey,
    pub(super) comm: Text,
    pub(super) ppid: u32,
    pub(super) session: Option<u32>,
    pub(super) is_zombie: bool,
}

impl Stat {
    fn new(pid: u32, stat: &ProcStat<'_>) -> Self {
        Self {
            pid,
            key: stat.key(pid),
            comm: Text::from(stat.comm),
            ppid: stat.ppid,
            session: stat.session,
            is_zombie: stat.is_zombie(),
        }
    }

    /// The process that has this pid now.
    pub(super) fn read(pid: u32) -> Option<Self> {
        process::stat(pid, |stat| Self::new(pid, stat)).ok()
    }

    /// All of them.
    pub(super) fn all() -> Vec<Self> {
        process::pids().filter_map(Self::read).collect()
    }

    /// Its arguments.
    pub(super) fn cmdline(&self) -> Vec<Text> {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        cmdline::arguments(&bytes).map(Text::from).collect()
    }

    /// Whether the environment that it was started with has this variable with this value.
    pub(super) fn has_in_environment(&self, name: &str, value: &str) -> bool {
        let bytes = std::fs::read(format!("/proc/{}/environ", self.pid)).unwrap_or_default();
        environ::values(&bytes, name).any(|one| one == value.as_bytes())
    }
}

/// The descendants of a process, without itself and without those in `apart` and their descendants.
pub(super) fn descendants<'a>(all: &'a [Stat], root: u32, apart: &[ProcKey]) -> Vec<&'a Stat> {
    let mut found: Vec<&Stat> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let children = all
            .iter()
            .filter(|one| one.ppid == parent && one.pid != root);
        for child in children.filter(|one| !apart.contains(&one.key)) {
            if !found.iter().any(|known| known.pid == child.pid) {
                parents.push(child.pid);
                found.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{ProcKey, ProcStat, Stat, descendants};

    fn stat(pid: u32, ppid: u32) -> Stat {
        let line = format!("{pid} (a) S {ppid} 7 {pid} 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 99 1");
        Stat::new(pid, &ProcStat::parse(line.as_bytes()).unwrap())
    }

    #[test]
    fn descendants_are_found_through_their_parents_and_not_those_set_apart() {
        let all = [
            stat(2, 1),
            stat(3, 2),
            stat(4, 3),
            stat(5, 1),
            stat(6, 5),
            stat(9, 8),
        ];
        let pids = |apart: &[ProcKey]| {
            let mut pids: Vec<u32> = descendants(&all, 1, apart)
                .iter()
                .map(|one| one.pid)
                .collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(&[]), [2, 3, 4, 5, 6]);
        assert_eq!(pids(&[stat(5, 1).key]), [2, 3, 4]);
    }

    #[test]
    fn we_are_a_process_ourselves() {
        let own = Stat::read(std::process::id()).unwrap();
        assert!(!own.is_zombie);
        assert!(!own.cmdline().is_empty());
        assert!(Stat::all().iter().any(|one| one.key == own.key));
    }
}
