//! SQLite databases and their side files among the regular files of one process.
//!
//! A file is opened only if its name or its neighbours suggest a database, read-only, for sixteen
//! bytes. That is safe for the target: POSIX locks belong to the process that took them, and this
//! one holds no connection.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;

use fdguard_core::{Class, Detail, Fd, FdEntry, FileId};
use rustix::fs::{Mode, OFlags};
use rustix::path::DecInt;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const WAL_MAGIC: [&[u8]; 2] = [&[0x37, 0x7f, 0x06, 0x82], &[0x37, 0x7f, 0x06, 0x83]];
const JOURNAL_MAGIC: &[u8] = &[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const EXTENSIONS: [&[u8]; 6] = [b".db", b".sqlite", b".sqlite3", b".db3", b".sdb", b".s3db"];
const SIDES: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];
/// How any of these end: most files end otherwise, and need no comparison.
const LAST_OF_EXTENSIONS: &[u8] = b"be3";
const LAST_OF_SIDES: &[u8] = b"lm";

/// Sets the classes of SQLite files. `links` opens the target's descriptor directory; without it (a
/// simulated tree, or the output of `lsof`) only names and neighbours decide.
pub(crate) fn classify<'a>(entries: &mut [FdEntry], links: &'a dyn Fn() -> Option<BorrowedFd<'a>>) {
    let bases: HashSet<Vec<u8>> = entries
        .iter()
        .filter(|entry| is_file(entry))
        .filter_map(|entry| side_of(entry.path()?.as_bytes()))
        .map(|(base, _)| base.to_vec())
        .collect();
    let candidates: Vec<usize> = (0..entries.len())
        .filter(|at| is_candidate(&entries[*at], &bases))
        .collect();
    if candidates.is_empty() {
        return;
    }
    let held: HashSet<Vec<u8>> = candidates
        .iter()
        .filter_map(|at| entries[*at].path())
        .map(|path| path.as_bytes().to_vec())
        .collect();
    let mut heads = Heads {
        links,
        seen: HashMap::new(),
    };
    let classes: Vec<_> = candidates
        .iter()
        .filter_map(|at| Some((*at, class_of(&entries[*at], &held, &mut heads)?)))
        .collect();
    for (at, (class, magic)) in classes {
        entries[at].class = class;
        if let Detail::File(file) = &mut entries[at].detail {
            file.magic = magic;
        }
    }
}

fn is_file(entry: &FdEntry) -> bool {
    matches!(entry.class, Class::Regular | Class::Deleted)
}

/// Files with a known suffix, or next to a side file that is also open.
fn is_candidate(entry: &FdEntry, bases: &HashSet<Vec<u8>>) -> bool {
    is_file(entry)
        && entry.path().is_some_and(|path| {
            let path = path.as_bytes();
            side_of(path).is_some() || has_extension(path) || bases.contains(path)
        })
}

fn ends_in(path: &[u8], letters: &[u8]) -> bool {
    path.last().is_some_and(|last| letters.contains(last))
}

fn has_extension(path: &[u8]) -> bool {
    ends_in(path, LAST_OF_EXTENSIONS)
        && EXTENSIONS.iter().any(|extension| path.ends_with(extension))
}

/// The database's path and the suffix, for a side file.
fn side_of(path: &[u8]) -> Option<(&[u8], &'static [u8])> {
    if !ends_in(path, LAST_OF_SIDES) {
        return None;
    }
    SIDES
        .iter()
        .find_map(|side| Some((path.strip_suffix(*side)?, *side)))
}

fn class_of(
    entry: &FdEntry,
    held: &HashSet<Vec<u8>>,
    heads: &mut Heads<'_>,
) -> Option<(Class, Option<bool>)> {
    let path = entry.path()?.as_bytes();
    let Some((base, side)) = side_of(path) else {
        let beside = SIDES
            .iter()
            .any(|side| held.contains(&[path, side].concat()));
        let magic = heads.of(entry).map(|head| head == *MAGIC);
        return (magic == Some(true) || beside).then_some((Class::SqliteDb, magic));
    };
    let near = held.contains(base)
        || SIDES
            .iter()
            .any(|other| *other != side && held.contains(&[base, other].concat()));
    let head = if near { None } else { heads.of(entry) };
    let begins = |magic: &[u8]| head.is_some_and(|head| head.starts_with(magic));
    match side {
        b"-wal" if near || WAL_MAGIC.iter().any(|magic| begins(magic)) => {
            Some((Class::SqliteWal, None))
        }
        b"-shm" if near => Some((Class::SqliteShm, None)),
        b"-journal" if near || begins(JOURNAL_MAGIC) => Some((Class::SqliteJournal, None)),
        _ => None,
    }
}

/// First bytes of files, each read once however many descriptors there are.
struct Heads<'a> {
    links: &'a dyn Fn() -> Option<BorrowedFd<'a>>,
    seen: HashMap<FileId, Option<[u8; 16]>>,
}

impl Heads<'_> {
    fn of(&mut self, entry: &FdEntry) -> Option<[u8; 16]> {
        let id = entry.id?;
        let read = || read_head((self.links)()?, entry.fd, id);
        *self.seen.entry(id).or_insert_with(read)
    }
}

/// The number may have been reused since it was read: only the same inode counts.
fn read_head(dir: BorrowedFd<'_>, fd: Fd, id: FileId) -> Option<[u8; 16]> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, DecInt::new(fd), flags, Mode::empty()).ok()?;
    let is_same = rustix::fs::fstat(&file).is_ok_and(|stat| stat.st_ino == id.ino);
    let mut head = [0; 16];
    let length = rustix::io::pread(&file, &mut head, 0).ok()?;
    (is_same && length == head.len()).then_some(head)
}

#[cfg(test)]
mod tests {
    use super::{EXTENSIONS, LAST_OF_EXTENSIONS, LAST_OF_SIDES, SIDES, ends_in};

    #[test]
    fn the_last_letters_are_those_of_the_names() {
        assert!(
            EXTENSIONS
                .iter()
                .all(|name| ends_in(name, LAST_OF_EXTENSIONS))
        );
        assert!(SIDES.iter().all(|name| ends_in(name, LAST_OF_SIDES)));
    }
}
