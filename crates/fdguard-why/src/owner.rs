//! Objects that own descriptors.

use std::collections::BTreeMap;

use crate::attribute;
use crate::graph::Index;
use crate::heap::Heap;
use crate::types::{Owner, Type};

const NUMBER: u64 = 16;
/// The byte with `closefd`, and its bit.
const CLOSES: (u64, u8) = (20, 0x40);
/// Where `sqlite3` has its databases and their number, and the bytes of each: the main one, the
/// temporary one, and those that were attached.
const DATABASES: u64 = 32;
const DATABASE_COUNT: u64 = 40;
const DATABASE_SIZE: u64 = 32;
/// As many as a connection may have.
const MOST_DATABASES: u64 = 127;
/// The sizes that the buffer of a `DIR` may have.
const DIRECTORY_BUFFER: std::ops::RangeInclusive<u64> = 512..=4 << 20;
/// How much of SQLite's structures is searched.
const PAGER_WORDS: u64 = 64;

/// An object that owns a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owning {
    pub(crate) fd: u32,
    pub(crate) object: Index,
}

impl Heap<'_> {
    /// The owners of the wanted descriptors. `paths` are the files that are open.
    pub(crate) fn owners(
        &self,
        is_wanted: &dyn Fn(u32) -> bool,
        paths: &BTreeMap<u32, String>,
    ) -> Vec<Owning> {
        let mut owners = Vec::new();
        let objects = Index::try_from(self.graph.objects.len()).unwrap_or(Index::MAX);
        for object in 0..objects {
            let Some(of) = self.type_of(object) else {
                continue;
            };
            let Some(owner) = of.owner else {
                continue;
            };
            let fds = self.owned(self.graph.address(object), &of, owner, paths);
            let fds = fds.into_iter().filter(|fd| is_wanted(*fd));
            owners.extend(fds.map(|fd| Owning { fd, object }));
        }
        owners
    }

    fn owned(
        &self,
        address: u64,
        of: &Type,
        owner: Owner,
        paths: &BTreeMap<u32, String>,
    ) -> Vec<u32> {
        let reader = &self.reader;
        let number = |offset| {
            let fd = reader.int(address, offset)?;
            u32::try_from(fd).ok()
        };
        let one = match owner {
            Owner::File => {
                let flags = reader.byte(address, CLOSES.0).unwrap_or(0);
                number(NUMBER).filter(|_| flags & CLOSES.1 != 0)
            }
            Owner::Number(offset) => number(offset),
            Owner::Attribute(name) => {
                attribute::get(reader, address, of, name).and_then(|value| self.small_number(value))
            }
            Owner::Directory => {
                let words = (NUMBER..of.size).step_by(8);
                let mut dirs = words.filter_map(|at| reader.pointer(address, at));
                dirs.find_map(|dir| self.directory(dir).filter(|fd| paths.contains_key(fd)))
            }
            Owner::Sqlite => return self.sqlite(address, paths),
            Owner::Cursor => {
                let connection = reader.pointer(address, NUMBER);
                let hidden = connection.filter(|one| self.graph.index_of(*one).is_none());
                return hidden.map_or_else(Vec::new, |one| self.sqlite(one, paths));
            }
        };
        one.into_iter().collect()
    }

    /// The number of glibc's `DIR`: it, a lock, the size of the buffer, how much of it is filled,
    /// and how much of that was read. A Python object begins with a small number, too.
    fn directory(&self, dir: u64) -> Option<u32> {
        let [size, filled, read] = [8, 16, 24].map(|at| self.reader.field(dir, at));
        let (size, filled, read) = (size?, filled?, read?);
        let is_one = DIRECTORY_BUFFER.contains(&size) && filled <= size && read <= filled;
        let fd = u32::try_from(self.reader.int(dir, 0)?).ok()?;
        (is_one && fd > 2).then_some(fd)
    }

    /// The value of a positive integer of one digit.
    pub(crate) fn small_number(&self, object: u64) -> Option<u32> {
        let one = match self.reader.at.minor() {
            12.. => 8,
            _ => 1,
        };
        if self.reader.field(object, 16)? != one {
            return None;
        }
        u32::try_from(self.reader.int(object, 24)?).ok()
    }

    /// The databases with their logs, indexes and journals. The library's structures differ from
    /// version to version: files are recognised by their second word, which is the connection's
    /// file system.
    fn sqlite(&self, connection: u64, paths: &BTreeMap<u32, String>) -> Vec<u32> {
        let found = || {
            let reader = &self.reader;
            let db = reader.pointer(connection, NUMBER)?;
            let system = reader.pointer(db, 0)?;
            let file = |at: u64| {
                let is_file = reader.field(at, 8)? == system;
                let fd = u32::try_from(reader.int(at, 24)?).ok()?;
                (is_file && paths.contains_key(&fd)).then_some(fd)
            };
            let mut fds = Vec::new();
            let words = self.pagers(db).into_iter();
            let words = words.flat_map(|pager| (0..PAGER_WORDS).map(move |word| (pager, word)));
            for (pager, word) in words {
                let Some(at) = reader.pointer(pager, word * 8) else {
                    continue;
                };
                fds.extend(file(at));
                // The log begins with the file system, then come the database and its own file.
                if reader.word(at) == Some(system) {
                    let parts = [8, 16].map(|part| reader.pointer(at, part).and_then(file));
                    fds.extend(parts.into_iter().flatten());
                }
            }
            Some(fds)
        };
        let mut fds = found().unwrap_or_default();
        // The index of the log is shared by all connections of the database.
        let databases: Vec<&String> = fds.iter().filter_map(|fd| paths.get(fd)).collect();
        let is_index = |path: &String| {
            let database = path.strip_suffix("-shm");
            database.is_some_and(|path| databases.iter().any(|one| one.as_str() == path))
        };
        let index = paths.iter().filter(|(_, path)| is_index(path));
        let index: Vec<u32> = index.map(|(fd, _)| *fd).collect();
        fds.extend(index);
        fds.sort_unstable();
        fds.dedup();
        fds
    }

    /// The pagers of a connection's databases: `aDb[N].pBt->pBt->pPager`.
    fn pagers(&self, db: u64) -> Vec<u64> {
        let reader = &self.reader;
        let count = reader.int(db, DATABASE_COUNT).unwrap_or(0);
        let count = u64::from(count.max(0).cast_unsigned()).min(MOST_DATABASES);
        let pager = |number: u64| {
            let first = reader.pointer(db, DATABASES)?;
            let tree = reader.pointer(first, number * DATABASE_SIZE + 8)?;
            let shared = reader.pointer(tree, 8)?;
            reader.pointer(shared, 0)
        };
        (0..count).filter_map(pager).collect()
    }
}
