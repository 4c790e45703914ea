//! Tables as the events alone show them.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use fdguard_kernel::{KernelEvent, Occurrence};

/// An open number: the open file, if it is known, and when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    file: Option<u64>,
    at: u64,
}

/// All tables.
#[derive(Debug, Default)]
pub(crate) struct Model {
    tables: HashMap<u64, BTreeMap<u32, Slot>>,
    /// The table of each process, and of threads with another.
    processes: HashMap<u32, u64>,
    threads: HashMap<u32, u64>,
}

impl Model {
    pub(crate) fn apply(&mut self, event: &KernelEvent) {
        let at = event.at;
        if event.table != 0 && !matches!(event.what, Occurrence::Exited) {
            self.threads.insert(event.tid, event.table);
        }
        let table = self.tables.entry(event.table).or_default();
        match &event.what {
            Occurrence::Opened { fd, file, .. } => {
                let file = Some(*file);
                table.insert(*fd, Slot { file, at });
            }
            Occurrence::Closed { fd, errno, .. } => {
                let is_newer = |slot: &Slot| slot.at <= at;
                if *errno != 9 && table.get(fd).is_some_and(is_newer) {
                    table.remove(fd);
                }
            }
            Occurrence::ClosedRange { first, last } => {
                table.retain(|fd, _| !(first..=last).contains(&fd));
            }
            Occurrence::Forked {
                child,
                child_table,
                open,
            } => {
                let copy = table.clone();
                self.processes.insert(*child, *child_table);
                if *child_table != event.table {
                    let copy = only(copy, open.as_ref().unwrap(), at);
                    self.tables.insert(*child_table, copy);
                }
            }
            Occurrence::Executed { open } => {
                let before = self.processes.insert(event.pid, event.table);
                let before = before.and_then(|before| self.tables.get(&before)).cloned();
                let after = only(before.unwrap_or_default(), open, at);
                self.tables.insert(event.table, after);
                self.threads.insert(event.pid, event.table);
            }
            Occurrence::Unshared { from, open } => {
                let before = self.tables.get(from).cloned().unwrap_or_default();
                let after = only(before, open.as_ref().unwrap(), at);
                self.tables.insert(event.table, after);
            }
            _ => {}
        }
    }

    /// Compares the table of a thread with what `/proc` shows.
    pub(crate) fn compare(&self, moment: &str, pid: u32, tid: u32) {
        let table = self.threads.get(&tid).or_else(|| self.processes.get(&pid));
        let table = &self.tables[table.unwrap()];
        let dir = PathBuf::from(format!("/proc/{pid}/task/{tid}/fd"));
        let mut links = BTreeMap::new();
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let fd: u32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            links.insert(fd, std::fs::read_link(path).unwrap());
        }
        let ours: Vec<_> = table.keys().collect();
        let theirs: Vec<_> = links.keys().collect();
        let missing: Vec<_> = theirs.iter().filter(|fd| !table.contains_key(fd)).collect();
        let wrong: Vec<_> = ours.iter().filter(|fd| !links.contains_key(fd)).collect();
        assert_eq!(
            ours, theirs,
            "{moment} {tid}: missing {missing:?}, wrong {wrong:?}"
        );
        // Numbers of one open file show the same thing.
        let mut files = HashMap::new();
        for (fd, slot) in table {
            if let Some(file) = slot.file {
                let first = files.entry(file).or_insert(&links[fd]);
                assert_eq!(*first, &links[fd], "{moment} {tid}: number {fd}");
            }
        }
    }
}

/// What remains of a table with these numbers. A number that is new was opened unseen.
fn only(mut table: BTreeMap<u32, Slot>, open: &[u32], at: u64) -> BTreeMap<u32, Slot> {
    table.retain(|fd, _| open.contains(fd));
    for fd in open {
        table.entry(*fd).or_insert(Slot { file: None, at });
    }
    table
}
