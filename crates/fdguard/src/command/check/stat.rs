//! Processes as listed in `/proc`, including zombies.

use std::path::Path;

use fdguard_core::Text;

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: u32,
    pub(super) comm: Text,
    pub(super) state: u8,
    pub(super) ppid: u32,
    pub(super) session: u32,
    pub(super) ticks: u64,
}

impl Stat {
    /// Parses a line of `/proc/PID/stat`; the command may contain blanks and brackets.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|byte| *byte == b'(')?;
        let close = bytes.iter().rposition(|byte| *byte == b')')?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pid = text(bytes.get(..open)?).trim().parse().ok()?;
        let rest = text(bytes.get(close + 1..)?);
        let words: Vec<&str> = rest.split_whitespace().collect();
        Some(Self {
            pid,
            comm: Text::from(bytes.get(open + 1..close)?),
            state: words.first()?.bytes().next()?,
            ppid: words.get(1)?.parse().ok()?,
            session: words.get(3)?.parse().ok()?,
            ticks: words.get(19)?.parse().ok()?,
        })
    }

    /// The process that has this pid now.
    pub(super) fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// All of them.
    pub(super) fn all() -> Vec<Self> {
        let Ok(listing) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids = names.filter_map(|name| name.parse().ok());
        pids.filter_map(Self::read).collect()
    }

    pub(super) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    pub(super) fn key(&self) -> (u32, u64) {
        (self.pid, self.ticks)
    }

    /// Its arguments.
    pub(super) fn cmdline(&self) -> Vec<Text> {
        let bytes = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        let words = bytes.split(|byte| *byte == 0);
        words
            .map(Text::from)
            .filter(|_| !bytes.is_empty())
            .collect()
    }

    /// Whether the environment that it was started with has this entry.
    pub(super) fn has_in_environment(&self, entry: &str) -> bool {
        let path = format!("/proc/{}/environ", self.pid);
        let bytes = std::fs::read(Path::new(&path)).unwrap_or_default();
        bytes
            .split(|byte| *byte == 0)
            .any(|one| one == entry.as_bytes())
    }
}

/// The descendants of a process, without itself and without those in `apart` and their descendants.
pub(super) fn descendants<'a>(all: &'a [Stat], root: u32, apart: &[(u32, u64)]) -> Vec<&'a Stat> {
    let mut found: Vec<&Stat> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let children = all
            .iter()
            .filter(|one| one.ppid == parent && one.pid != root);
        for child in children.filter(|one| !apart.contains(&one.key())) {
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
    use super::{Stat, descendants};

    fn stat(pid: u32, ppid: u32) -> Stat {
        let rest = "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0";
        let line = format!("{pid} (a) b (c) S {ppid} 7 {pid} {rest} 99 1");
        Stat::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn a_command_with_brackets_does_not_confuse() {
        let found = stat(12, 3);
        assert_eq!((found.pid, found.ppid, found.session), (12, 3, 12));
        assert_eq!((found.state, found.ticks), (b'S', 99));
        assert_eq!(found.comm.to_lossy(), "a) b (c");
        assert_eq!(Stat::parse(b"12 (a"), None);
        assert_eq!(Stat::parse(b""), None);
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
        let pids = |apart: &[(u32, u64)]| {
            let mut pids: Vec<u32> = descendants(&all, 1, apart)
                .iter()
                .map(|one| one.pid)
                .collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids(&[]), [2, 3, 4, 5, 6]);
        assert_eq!(pids(&[(5, 99)]), [2, 3, 4]);
    }

    #[test]
    fn we_are_a_process_ourselves() {
        let own = Stat::read(std::process::id()).unwrap();
        assert!(!own.is_zombie());
        assert!(!own.cmdline().is_empty());
        assert!(Stat::all().iter().any(|one| one.key() == own.key()));
    }
}
