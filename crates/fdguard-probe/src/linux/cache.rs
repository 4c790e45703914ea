//! A watcher's record of the descriptors it has read: enough to detect changes, and small enough
//! for ten thousand of them.

use std::hash::{Hash as _, Hasher as _};

use fdguard_core::{Class, Detail, Fd, FdEntry, FileId};
use fdguard_proc::link::DELETION_MARK;
use rustc_hash::FxHasher;

/// The state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CachedDetail {
    Same,
    /// The same, but of another class or name.
    Changed,
    /// Another one has its number now.
    Replaced,
}

/// One descriptor.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// Hash of its link's text; absent if not read yet.
    link: Option<u64>,
    /// Hash of its class and target.
    shown: u64,
    id: Option<FileId>,
    /// Hash of its family: anonymous inodes all share one identity.
    family: u64,
    /// Whether it cannot change as long as its link does not.
    is_settled: bool,
}

/// All descriptors of a table, ascending.
#[derive(Debug, Default)]
pub(super) struct DescriptorCache {
    numbers: Vec<Fd>,
    marks: Vec<Mark>,
    /// Those of the last listing: a socket may have been read before it was connected.
    fresh: Vec<Fd>,
    /// Where the next check of the others begins.
    cursor: usize,
}

impl DescriptorCache {
    /// The numbers in use.
    pub(super) fn numbers(&self) -> &[Fd] {
        &self.numbers
    }

    /// Sets the numbers, and which of them are new.
    pub(super) fn replace(&mut self, numbers: Vec<Fd>, new: &[FdEntry]) {
        let mut marks = Vec::with_capacity(numbers.len());
        for fd in &numbers {
            let is_new = new.binary_search_by_key(fd, |entry| entry.fd);
            match (is_new, self.numbers.binary_search(fd)) {
                (Ok(at), _) => marks.push(Mark::of(&new[at])),
                (Err(_), Ok(at)) => marks.push(self.marks[at]),
                // Neither new nor known: impossible, so it is read again.
                (Err(_), Err(_)) => marks.push(Mark::unseen()),
            }
        }
        self.numbers = numbers;
        self.marks = marks;
        self.fresh = new.iter().map(|entry| entry.fd).collect();
    }

    /// The next ones to read again.
    pub(super) fn next(&mut self, most: usize) -> Vec<Fd> {
        let mut chosen = std::mem::take(&mut self.fresh);
        chosen.truncate(most);
        let rest = (most - chosen.len()).min(self.numbers.len());
        for _ in 0..rest {
            self.cursor = (self.cursor + 1) % self.numbers.len();
            chosen.push(self.numbers[self.cursor]);
        }
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    /// Whether the text of its link alone proves that nothing has changed.
    pub(super) fn is_settled(&self, fd: Fd, link: u64) -> bool {
        let at = self.numbers.binary_search(&fd);
        at.is_ok_and(|at| self.marks[at].is_settled && self.marks[at].link == Some(link))
    }

    /// Takes in another read of a descriptor; `link` was read just before.
    pub(super) fn compare(&mut self, entry: &FdEntry, link: u64) -> CachedDetail {
        let Ok(at) = self.numbers.binary_search(&entry.fd) else {
            return CachedDetail::Same;
        };
        let (old, mut new) = (self.marks[at], Mark::of(entry));
        let is_same = old.id == new.id && old.family == new.family;
        if is_same {
            // Only now: a link that is seen for the first time may belong to a successor.
            new.link = new.link.or(Some(link));
        }
        self.marks[at] = new;
        if !is_same {
            CachedDetail::Replaced
        } else if old.shown != new.shown {
            CachedDetail::Changed
        } else {
            CachedDetail::Same
        }
    }
}

impl Mark {
    fn of(entry: &FdEntry) -> Self {
        let mut shown = FxHasher::default();
        entry.class.hash(&mut shown);
        entry.target.hash(&mut shown);
        let mut family = FxHasher::default();
        entry.class.family().hash(&mut family);
        Self {
            link: link_of(entry).map(|link| hash_of(&link)),
            shown: shown.finish(),
            id: entry.id,
            family: family.finish(),
            is_settled: !changes(entry),
        }
    }

    fn unseen() -> Self {
        Self {
            link: None,
            shown: 0,
            id: None,
            family: 0,
            is_settled: false,
        }
    }
}

/// Whether it can change while its link does not: a connection closes, a process exits.
fn changes(entry: &FdEntry) -> bool {
    matches!(
        entry.detail,
        Detail::Inet(_) | Detail::Unix(_) | Detail::Pidfd(_)
    ) || matches!(entry.class, Class::Tcp(_))
}

/// The text of its link, if it follows from the entry, so that it cannot be another file's.
fn link_of(entry: &FdEntry) -> Option<Vec<u8>> {
    match &entry.detail {
        Detail::Pipe(pipe) if pipe.path.is_none() => {
            entry.id.map(|id| format!("pipe:[{}]", id.ino).into_bytes())
        }
        Detail::File(file) if entry.deleted => Some([file.path.as_bytes(), DELETION_MARK].concat()),
        Detail::File(file) => Some(file.path.as_bytes().to_vec()),
        _ => None,
    }
}

pub(super) fn hash_of(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    bytes.hash(&mut hasher);
    hasher.finish()
}
