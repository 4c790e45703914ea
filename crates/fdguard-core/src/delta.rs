//! What changed between two snapshots, by identity and not by number alone.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{Class, Detail, Fd, FdEntry, Snapshot};

/// The difference of two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Delta {
    /// Whether both show the same process (pid and start time); absent when a start time is unknown.
    pub same_process: Option<bool>,
    /// Change of the count; absent when one of them is unknown.
    pub count: Option<i64>,
    /// In the second only.
    pub opened: Vec<FdEntry>,
    /// In the first only.
    pub closed: Vec<FdEntry>,
    /// The same thing at the same number, but something about it is different.
    pub changed: Vec<Change>,
    /// Change per class, largest growth first.
    pub classes: Vec<ClassDelta>,
}

/// A descriptor that stayed and is not as it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Its number.
    pub fd: Fd,
    /// What is different, by field name.
    pub what: Vec<&'static str>,
    /// Before.
    pub before: FdEntry,
    /// After.
    pub after: FdEntry,
}

/// Change of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassDelta {
    /// The class.
    pub class: Class,
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// Compares two snapshots. `None` when one of them has no list of descriptors.
#[must_use]
pub fn delta(before: &Snapshot, after: &Snapshot) -> Option<Delta> {
    let (old, new) = (before.fds.as_deref()?, after.fds.as_deref()?);
    let old_by_fd: BTreeMap<Fd, &FdEntry> = old.iter().map(|entry| (entry.fd, entry)).collect();
    let new_by_fd: BTreeMap<Fd, &FdEntry> = new.iter().map(|entry| (entry.fd, entry)).collect();
    let mut opened = Vec::new();
    let mut closed = Vec::new();
    let mut changed = Vec::new();
    for entry in new {
        match old_by_fd.get(&entry.fd) {
            Some(before) if same_thing(before, entry) => changed.extend(change(before, entry)),
            _ => opened.push(entry.clone()),
        }
    }
    for entry in old {
        let stayed = new_by_fd
            .get(&entry.fd)
            .is_some_and(|after| same_thing(entry, after));
        if !stayed {
            closed.push(entry.clone());
        }
    }
    Some(Delta {
        same_process: before
            .process
            .key()
            .zip(after.process.key())
            .map(|(a, b)| a == b),
        count: before.count.zip(after.count).map(|(a, b)| difference(a, b)),
        opened,
        closed,
        changed,
        classes: class_deltas(old, new),
    })
}

fn difference(before: u64, after: u64) -> i64 {
    i64::try_from(i128::from(after) - i128::from(before)).unwrap_or(i64::MAX)
}

/// Whether two records of one number are the same open thing. Files, sockets and pipes have an
/// inode of their own; anonymous inodes share one, so there the class and what little identity
/// the kernel gives decide, and a reopened twin cannot be told apart.
#[must_use]
pub fn same_thing(a: &FdEntry, b: &FdEntry) -> bool {
    if a.class.family() != b.class.family() {
        return false;
    }
    match (&a.detail, &b.detail) {
        (Detail::Eventfd(x), Detail::Eventfd(y)) if x.id.is_some() && y.id.is_some() => {
            x.id == y.id
        }
        _ => match (a.id, b.id) {
            (Some(x), Some(y)) => x == y,
            _ => a.target == b.target,
        },
    }
}

fn change(before: &FdEntry, after: &FdEntry) -> Option<Change> {
    let mut what = Vec::new();
    if before.class != after.class {
        what.push("class");
    }
    if before.target != after.target {
        what.push("target");
    }
    if before.deleted != after.deleted {
        what.push("deleted");
    }
    if before.cloexec != after.cloexec {
        what.push("cloexec");
    }
    if before.mode != after.mode {
        what.push("mode");
    }
    (!what.is_empty()).then(|| Change {
        fd: after.fd,
        what,
        before: before.clone(),
        after: after.clone(),
    })
}

fn class_deltas(old: &[FdEntry], new: &[FdEntry]) -> Vec<ClassDelta> {
    let mut counts: BTreeMap<&Class, (u64, u64)> = BTreeMap::new();
    for entry in old {
        counts.entry(&entry.class).or_default().0 += 1;
    }
    for entry in new {
        counts.entry(&entry.class).or_default().1 += 1;
    }
    let mut list: Vec<_> = counts
        .into_iter()
        .filter(|(_, (before, after))| before != after)
        .map(|(class, (before, after))| ClassDelta {
            class: class.clone(),
            before,
            after,
        })
        .collect();
    list.sort_by_key(|row| std::cmp::Reverse(difference(row.before, row.after)));
    list
}
