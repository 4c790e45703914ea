//! The file: replaced, deleted, damaged, another program's, and closed without a trace.

use std::fs;
use std::path::Path;

use fdguard_files::Registry;
use fdguard_files::registry::{Error, RowFilter};
use fdguard_proc::ProcessId;
use rusqlite::Connection;

use super::{Place, session};
use crate::suite::{MadeDatabase, alert, settles, threads, write_at};

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn r44_a_registry_that_is_replaced_or_deleted_while_open_takes_nothing() {
    for what in ["deleted", "replaced"] {
        for suffix in ["", "-wal", "-shm"] {
            let place = Place::new();
            let registry = place.open();
            registry.add(session("before")).unwrap();
            let file = place.beside(suffix);
            fs::rename(&file, place.beside(".aside")).unwrap();
            if what == "replaced" {
                fs::copy(place.beside(".aside"), &file).unwrap();
            }
            let refused = registry.add(session("after")).unwrap_err();
            assert!(
                matches!(&refused, Error::Replaced { path, .. } if *path == file.canonicalize().unwrap_or(file.clone())),
                "{refused}"
            );
            let words = refused.to_string();
            assert!(words.contains(&format!("was {what}")), "{words}");
            assert!(registry.get("before").is_err());
            // The original file is back: it continues.
            fs::rename(place.beside(".aside"), &file).unwrap();
            registry.add(session("again")).unwrap();
            assert_eq!(registry.list(&RowFilter::default()).unwrap().len(), 2);
        }
    }
}

#[test]
fn r44_one_that_was_replaced_does_not_take_the_log_of_its_successor_away() {
    let place = Place::new();
    let old = place.open();
    old.add(session("old")).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(place.beside(suffix)).unwrap();
    }
    let new = place.open();
    new.add(session("new")).unwrap();
    drop(old);
    new.add(session("newer")).unwrap();
    drop(new);
    let ids: Vec<_> = place.open().list(&RowFilter::default()).unwrap();
    assert_eq!(
        ids.iter().map(|row| &*row.id).collect::<Vec<_>>(),
        ["new", "newer"]
    );
}

#[test]
fn r45_damage_is_refused_with_the_way_on_and_nothing_is_made_anew() {
    type Damage = (&'static str, fn(&Path));
    let damages: [Damage; 4] = [
        ("empty", |path| fs::write(path, "").unwrap()),
        ("tls", |path| write_at(path, 5, &alert())),
        ("text", |path| {
            fs::write(path, "not a database at all\n".repeat(300)).unwrap()
        }),
        ("page", |path| write_at(path, 4096, &[0x55; 4096])),
    ];
    for (name, damage) in damages {
        let place = Place::new();
        place.open().add(session("s")).unwrap();
        damage(&place.path);
        let before = fs::read(&place.path).unwrap();
        let refused = place.refused();
        assert!(
            refused.contains("fdguard inspect")
                || name == "text" && refused.contains("not an fdguard registry"),
            "{name}: {refused}"
        );
        assert_eq!(refused.lines().count(), 1, "{refused}");
        assert_eq!(fs::read(&place.path).unwrap(), before, "{name}");
    }
    let place = Place::new();
    fs::write(place.beside("-wal"), "of a registry that is gone").unwrap();
    assert!(place.refused().contains("its WAL exists"));
    assert!(!place.path.exists());
}

#[test]
fn r45_other_programs_databases_and_later_versions_are_left_alone() {
    let made = MadeDatabase::new("wal");
    let before = made.bytes();
    let refused = Registry::open(&made.path).unwrap_err().to_string();
    assert!(refused.contains("another program"), "{refused}");
    assert_eq!(made.bytes(), before);
    let place = Place::new();
    drop(place.open());
    let later = Connection::open(&place.path).unwrap();
    later.pragma_update(None, "user_version", 3).unwrap();
    drop(later);
    let refused = place.refused();
    assert!(
        refused.contains("has version 3") && refused.contains("newer fdguard"),
        "{refused}"
    );
}

#[test]
fn a_registry_of_version_1_is_upgraded_with_its_entries() {
    let place = Place::new();
    place.open().add(session("old")).unwrap();
    let before = Connection::open(&place.path).unwrap();
    before
        .execute_batch("ALTER TABLE entries DROP COLUMN keeper; PRAGMA user_version = 1;")
        .unwrap();
    drop(before);
    let registry = place.open();
    assert_eq!(registry.get("old").unwrap().unwrap().keeper, None);
    let own = ProcessId::current().unwrap();
    let mut new = session("new");
    new.keeper = Some(own.clone());
    registry.add(new).unwrap();
    assert_eq!(registry.get("new").unwrap().unwrap().keeper, Some(own));
}

#[test]
fn two_handles_of_a_process_are_one_and_the_last_leaves_nothing() {
    let place = Place::new();
    let (before, base) = (descriptors(), threads());
    for _ in 0..20 {
        let first = place.open();
        let second = Registry::open(&place.dir.path().join(".").join("registry.db")).unwrap();
        assert_eq!(threads(), base + 1, "one vault");
        assert_eq!(descriptors(), before, "nothing in the shared table");
        drop(first);
        second.counts(&RowFilter::default()).unwrap();
        drop(second);
        assert!(settles(|| threads() == base));
    }
    assert_eq!(descriptors(), before);
    assert!(!place.beside("-wal").exists());
}

#[test]
fn r44_a_log_that_another_put_in_its_place_is_not_removed_at_the_close() {
    let place = Place::new();
    let registry = place.open();
    registry.add(session("s")).unwrap();
    let log = place.beside("-wal");
    fs::rename(&log, place.beside(".aside")).unwrap();
    fs::write(&log, "another's").unwrap();
    drop(registry);
    assert_eq!(fs::read(&log).unwrap(), b"another's");
    // Put back, it contains what was written.
    fs::rename(place.beside(".aside"), &log).unwrap();
    assert!(place.open().get("s").unwrap().is_some());
}
