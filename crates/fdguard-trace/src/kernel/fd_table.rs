//! A table of descriptors in the kernel (`files_struct`), which processes and threads may share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fdguard_wire::OpenCall;

use crate::table::Descriptor;

/// What is open, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct FdTable {
    entries: BTreeMap<u32, TableEntry>,
    generations: HashMap<u32, u32>,
    /// When each number was last opened or closed, as far as that was reported.
    changed: HashMap<u32, u64>,
}

/// One open number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableEntry {
    /// How it was opened; `None` if it was open before tracing began.
    pub(super) opened: Option<Descriptor>,
    /// The open file; 0 if unknown.
    pub(super) file: u64,
    /// Whether it was found by comparing tables, so that another call may have opened it.
    pub(super) is_by_comparison: bool,
}

impl FdTable {
    /// A table in which these numbers are open, opened before tracing began.
    pub(super) fn opened_before(fds: impl IntoIterator<Item = u32>) -> Self {
        let mut table = Self::default();
        for fd in fds {
            table.add_before(fd);
        }
        table
    }

    pub(super) fn get(&self, fd: u32) -> Option<&TableEntry> {
        self.entries.get(&fd)
    }

    /// Adds a number that was open before tracing began.
    pub(super) fn add_before(&mut self, fd: u32) {
        let before = TableEntry {
            opened: None,
            file: 0,
            is_by_comparison: false,
        };
        self.entries.entry(fd).or_insert(before);
    }

    /// A number was opened.
    pub(super) fn open(&mut self, fd: u32, mut descriptor: Descriptor, entry: TableEntry) {
        self.changed.insert(fd, descriptor.ns);
        let generation = self.generations.entry(fd).or_insert(0);
        *generation += 1;
        descriptor.generation = *generation;
        let opened = Some(descriptor);
        self.entries.insert(fd, TableEntry { opened, ..entry });
    }

    /// Another call opened it than was believed.
    pub(super) fn reassign(&mut self, fd: u32, (stack, tid, call): (u32, u32, OpenCall)) {
        if let Some(entry) = self.entries.get_mut(&fd) {
            entry.is_by_comparison = false;
            if let Some(opened) = &mut entry.opened {
                (opened.stack, opened.tid, opened.call) = (stack, tid, call);
            }
        }
    }

    /// Whether something is known about a number that is later.
    pub(super) fn is_stale(&self, fd: u32, at: u64) -> bool {
        self.changed.get(&fd).is_some_and(|changed| *changed > at)
    }

    pub(super) fn close(&mut self, fd: u32, at: u64) -> Option<TableEntry> {
        self.changed.insert(fd, at);
        self.entries.remove(&fd)
    }

    /// Sets which numbers are open, where a copy was taken while another thread changed it.
    pub(super) fn keep_only(&mut self, open: &[u32]) {
        let wanted: BTreeSet<u32> = open.iter().copied().collect();
        self.entries.retain(|fd, _| wanted.contains(fd));
        wanted.into_iter().for_each(|fd| self.add_before(fd));
    }

    /// Closes all numbers of a range, and returns what was open.
    pub(super) fn close_range(&mut self, first: u32, last: u32, at: u64) -> Vec<(u32, TableEntry)> {
        if first > last {
            return Vec::new();
        }
        let open = self.entries.range(first..=last);
        let open: Vec<_> = open.map(|(fd, entry)| (*fd, *entry)).collect();
        for (fd, _) in &open {
            self.close(*fd, at);
        }
        open
    }

    /// The table of a forked child.
    pub(super) fn copy_for_child(&self) -> Self {
        let mut copy = self.clone();
        let opened = copy.entries.values_mut();
        for opened in opened.filter_map(|entry| entry.opened.as_mut()) {
            opened.forks = opened.forks.saturating_add(1);
        }
        copy
    }

    /// What was opened since tracing began, by number.
    pub(super) fn opened(&self) -> impl Iterator<Item = (u32, Descriptor)> {
        let entries = self.entries.iter();
        entries.filter_map(|(fd, entry)| Some((*fd, entry.opened?)))
    }

    /// The numbers that were open before.
    pub(super) fn before(&self) -> impl Iterator<Item = u32> {
        let entries = self.entries.iter();
        entries.filter_map(|(fd, entry)| entry.opened.is_none().then_some(*fd))
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = u32> {
        self.entries.keys().copied()
    }
}
