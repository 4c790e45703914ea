//! SQLite databases and their side files, by names alone: nothing may be opened here.
//!
//! A file is only called a database when a side file of it is held as well, and a side file only when
//! the database or another side file is. A database without either stays a regular file.

use std::collections::HashSet;

use fdguard_core::{Class, FdEntry, Text};

const SIDES: [(&[u8], Class); 3] = [
    (b"-wal", Class::SqliteWal),
    (b"-shm", Class::SqliteShm),
    (b"-journal", Class::SqliteJournal),
];

/// Renames the classes of SQLite files.
pub(super) fn classify(entries: &mut [FdEntry]) {
    let held: HashSet<Text> = entries
        .iter()
        .filter(|entry| is_file(entry))
        .filter_map(|entry| entry.path().cloned())
        .collect();
    for entry in entries.iter_mut().filter(|entry| is_file(entry)) {
        if let Some(class) = entry
            .path()
            .and_then(|path| class_of(path.as_bytes(), &held))
        {
            entry.class = class;
        }
    }
}

fn is_file(entry: &FdEntry) -> bool {
    matches!(entry.class, Class::Regular | Class::Deleted)
}

fn class_of(path: &[u8], held: &HashSet<Text>) -> Option<Class> {
    let side = SIDES
        .iter()
        .find_map(|(ending, class)| Some((path.strip_suffix(*ending)?, *ending, class)));
    let Some((base, ending, class)) = side else {
        return has_side(path, b"", held).then_some(Class::SqliteDb);
    };
    let near = held.contains(&Text::from(base)) || has_side(base, ending, held);
    near.then(|| class.clone())
}

/// Whether a side file of this database is held, other than the one with this ending.
fn has_side(base: &[u8], but: &[u8], held: &HashSet<Text>) -> bool {
    SIDES
        .iter()
        .filter(|(ending, _)| *ending != but)
        .any(|(ending, _)| held.contains(&Text::from([base, ending].concat())))
}
