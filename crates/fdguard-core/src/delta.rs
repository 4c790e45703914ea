//! What changed between two snapshots, by identity and not by number alone.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::count::difference;
use crate::{Class, Detail, Fd, FdEntry, Snapshot};

/// The difference of two snapshots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Delta {
    /// Whether both show the same process (pid and start time); absent when a start time is
    /// unknown.
    pub same_process: Option<bool>,
    /// Change of the count; absent when one of them is unknown.
    pub count: Option<i64>,
    /// Only in the second.
    pub opened: Vec<FdEntry>,
    /// Only in the first.
    pub closed: Vec<FdEntry>,
    /// The same thing at the same number, with something changed.
    pub changed: Vec<FdChange>,
    /// Change per class, largest growth first.
    pub classes: Vec<ClassDelta>,
}

/// A descriptor that stayed open and changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FdChange {
    /// Its number.
    pub fd: Fd,
    /// The names of the changed fields.
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

/// Whether two records of one number are the same open thing. Files, sockets and pipes have their
/// own inode. Anonymous inodes share one, so there the class and the little identity that the
/// kernel gives decide, and a reopened twin looks the same. So does a new file that got the inode
/// number of a deleted one: it looks like a rename.
#[must_use]
pub fn same_thing(a: &FdEntry, b: &FdEntry) -> bool {
    if a.class.family() != b.class.family() || differ(a.mode, b.mode) {
        return false;
    }
    match (&a.detail, &b.detail) {
        (Detail::Eventfd(x), Detail::Eventfd(y)) if x.id.is_some() && y.id.is_some() => {
            x.id == y.id
        }
        // Before pidfs all pidfds shared the anonymous inode.
        (Detail::Pidfd(x), Detail::Pidfd(y)) if differ(x.pid, y.pid) => false,
        _ => match (a.id, b.id) {
            (Some(x), Some(y)) => x == y,
            _ => a.target == b.target,
        },
    }
}

/// Whether both are known and differ: a value that could not be read has not changed.
fn differ<T: PartialEq>(a: Option<T>, b: Option<T>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a != b)
}

/// The mode is not compared: nothing can change it while a file is open, see [`same_thing`].
fn change(before: &FdEntry, after: &FdEntry) -> Option<FdChange> {
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
    if differ(before.cloexec, after.cloexec) {
        what.push("cloexec");
    }
    (!what.is_empty()).then(|| FdChange {
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

#[cfg(test)]
mod tests {
    use super::{ClassDelta, Delta, delta};
    use crate::TcpState::{CloseWait, Established};
    use crate::detail::{Eventfd, Pidfd};
    use crate::testing::{entry, file, pipe, radar, snapshot, stdio, tcp};
    use crate::{Class, Detail, Fd, FdEntry, Mode, Snapshot};

    fn between(before: Vec<FdEntry>, after: Vec<FdEntry>) -> Delta {
        delta(&snapshot(before), &snapshot(after)).unwrap()
    }

    fn fds(entries: &[FdEntry]) -> Vec<Fd> {
        entries.iter().map(|entry| entry.fd).collect()
    }

    fn log(fd: Fd) -> FdEntry {
        file(fd, Class::Regular, "/var/log/app.log")
    }

    #[test]
    fn r14_nothing_changed_is_an_empty_difference() {
        let same = between(stdio(), stdio());
        assert_eq!(same.count, Some(0));
        assert_eq!(same.same_process, Some(true));
        assert!(same.opened.is_empty() && same.closed.is_empty());
        assert!(same.changed.is_empty() && same.classes.is_empty());
    }

    #[test]
    fn r14_a_number_reused_for_another_file_is_closed_and_opened() {
        let other = file(5, Class::Regular, "/var/log/other.log");
        let found = between(vec![log(5)], vec![other]);
        assert_eq!(fds(&found.closed), [5]);
        assert_eq!(fds(&found.opened), [5]);
        assert!(found.changed.is_empty() && found.classes.is_empty());
        assert_eq!(found.count, Some(0));
    }

    #[test]
    fn r14_a_number_reused_for_another_kind_is_closed_and_opened() {
        let socket = FdEntry {
            id: log(5).id,
            ..tcp(5, Established, None)
        };
        let found = between(vec![log(5)], vec![socket]);
        assert_eq!((fds(&found.closed), fds(&found.opened)), (vec![5], vec![5]));
    }

    #[test]
    fn r14_a_file_reopened_for_writing_is_another_open_file() {
        let reader = log(5).mode(Some(Mode::Read));
        let found = between(vec![reader], vec![log(5).mode(Some(Mode::Write))]);
        assert_eq!((fds(&found.closed), fds(&found.opened)), (vec![5], vec![5]));
    }

    #[test]
    fn r14_a_connection_that_the_peer_closed_is_changed_and_stays() {
        let found = between(
            vec![tcp(5, Established, Some("10.0.0.7:443"))],
            vec![FdEntry {
                target: tcp(5, Established, None).target,
                ..tcp(5, CloseWait, Some("10.0.0.7:443"))
            }],
        );
        assert!(found.opened.is_empty() && found.closed.is_empty());
        assert_eq!(found.changed[0].what, ["class"]);
        assert_eq!(found.changed[0].after.class, Class::Tcp(CloseWait));
    }

    #[test]
    fn r14_a_file_that_lost_its_name_is_changed_and_stays() {
        let unlinked = FdEntry {
            class: Class::Deleted,
            ..log(5).deleted()
        };
        let found = between(vec![log(5)], vec![unlinked]);
        assert!(found.opened.is_empty() && found.closed.is_empty());
        assert_eq!(found.changed[0].what, ["class", "deleted"]);
        assert_eq!(found.changed[0].fd, 5);
    }

    #[test]
    fn r14_a_renamed_file_has_another_target() {
        let renamed = FdEntry {
            id: log(5).id,
            ..file(5, Class::Regular, "/var/log/app.log.1")
        };
        let found = between(vec![log(5)], vec![renamed]);
        assert_eq!(found.changed[0].what, ["target"]);
    }

    #[test]
    fn r14_what_could_not_be_read_has_not_changed() {
        let unread = log(5).mode(None).cloexec(None);
        let found = between(vec![log(5)], vec![unread]);
        assert!(found.changed.is_empty() && found.opened.is_empty());
    }

    #[test]
    fn r14_without_an_identity_the_target_decides() {
        let anonymous = |entry: FdEntry| FdEntry { id: None, ..entry };
        let found = between(vec![anonymous(log(5))], vec![log(5)]);
        assert!(found.opened.is_empty());
        let other = anonymous(file(5, Class::Regular, "/tmp/x"));
        let found = between(vec![anonymous(log(5))], vec![other]);
        assert_eq!(fds(&found.opened), [5]);
    }

    #[test]
    fn r14_anonymous_kinds_are_told_apart_by_what_the_kernel_gives() {
        let counter = |id| FdEntry {
            detail: Detail::Eventfd(Eventfd {
                id,
                ..Eventfd::default()
            }),
            ..entry(5, Class::Eventfd)
        };
        let handle = |pid| FdEntry {
            detail: Detail::Pidfd(Pidfd {
                pid,
                ..Pidfd::default()
            }),
            ..entry(6, Class::Pidfd)
        };
        let before = vec![counter(Some(1)), handle(Some(70))];
        let after = vec![counter(Some(2)), handle(Some(71))];
        assert_eq!(fds(&between(before.clone(), after).opened), [5, 6]);
        // An exited process no longer has a pid: the handle is the same.
        let exited = vec![counter(Some(1)), handle(None)];
        assert!(between(before, exited).opened.is_empty());
    }

    #[test]
    fn r14_classes_are_listed_by_growth() {
        let end = crate::detail::PipeEnd::Read;
        let after = vec![
            pipe(3, end, None),
            pipe(4, end, None),
            entry(5, Class::Pidfd),
        ];
        let found = between(vec![log(9)], after);
        let row = |class, before, after| ClassDelta {
            class,
            before,
            after,
        };
        assert_eq!(
            found.classes,
            [
                row(Class::Pipe, 0, 2),
                row(Class::Pidfd, 0, 1),
                row(Class::Regular, 1, 0)
            ]
        );
        assert_eq!(found.count, Some(2));
    }

    #[test]
    fn r14_a_pid_that_was_given_away_is_another_process() {
        let mut later = snapshot(stdio());
        later.process.start_ticks = Some(999);
        let same = |other: &Snapshot| delta(&snapshot(stdio()), other).unwrap().same_process;
        assert_eq!(same(&later), Some(false));
        later.process.start_ticks = None;
        assert_eq!(same(&later), None);
    }

    #[test]
    fn r14_the_radar_cannot_be_compared() {
        assert_eq!(delta(&radar(5), &snapshot(stdio())), None);
        assert_eq!(delta(&snapshot(stdio()), &radar(5)), None);
    }
}
