//! A thread with its own descriptor table.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fdguard_files::vault::{self, Vault};
use rusqlite::Connection;
use testkit::sys::stale_write;

use super::{MadeDatabase, settles, threads};

/// What is open in a table, by device and inode.
fn table(path: &str) -> BTreeSet<(u64, u64)> {
    let entries = fs::read_dir(path).unwrap();
    let ids = entries.filter_map(|entry| fs::metadata(entry.unwrap().path()).ok());
    ids.map(|meta| (meta.dev(), meta.ino())).collect()
}

fn id(path: &Path) -> (u64, u64) {
    let meta = fs::metadata(path).unwrap();
    (meta.dev(), meta.ino())
}

fn thread() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .unsigned_abs()
}

/// Starts a vault with a connection that has read something.
fn opened(path: &Path) -> Vault<Connection> {
    let path = path.to_owned();
    let make = move || {
        let connection = Connection::open(path)?;
        connection.query_row("SELECT count(*) FROM t", [], |_| Ok(()))?;
        Ok::<_, rusqlite::Error>(connection)
    };
    Vault::start("vault", make).unwrap().unwrap()
}

/// Numbers that are open in the table of this thread.
fn numbers() -> BTreeSet<u32> {
    let path = |number: &u32| format!("/proc/thread-self/fd/{number}");
    let is_open = |number: &u32| fs::symlink_metadata(path(number)).is_ok();
    (0..1024).filter(is_open).collect()
}

/// A stale write to every low number except these, as by a TLS library whose socket was closed
/// under it. Returns how many succeeded.
fn stale_writes(but: &BTreeSet<u32>) -> usize {
    let numbers = (3..64).filter(|number| !but.contains(number));
    let record = super::alert();
    let hits = numbers.filter(|number| stale_write(*number, &record).is_ok());
    hits.count()
}

#[test]
fn r44_what_a_vault_opens_is_in_its_own_table_and_in_no_other() {
    let made = MadeDatabase::new("wal");
    let before = table("/proc/self/fd");
    let base = threads();
    let vault = opened(&made.path);
    let tid = vault.run(|_| thread()).unwrap();
    let inside = table(&format!("/proc/self/task/{tid}/fd"));
    for suffix in ["", "-wal", "-shm"] {
        assert!(inside.contains(&id(&made.beside(suffix))), "{suffix}");
    }
    assert_eq!(
        table("/proc/self/fd"),
        before,
        "nothing in the process's own"
    );
    // Nothing of the process's table was kept, not even the standard streams.
    let null = id(Path::new("/dev/null"));
    let expected = ["", "-wal", "-shm"].map(|suffix| id(&made.beside(suffix)));
    let expected: BTreeSet<_> = expected.into_iter().chain([null]).collect();
    assert_eq!(inside, expected);
    assert_eq!(threads(), base + 1);
    drop(vault);
    assert!(settles(|| threads() == base));
    assert_eq!(table("/proc/self/fd"), before);
    assert!(!made.beside("-wal").exists(), "the connection was closed");
}

#[test]
fn r44_a_stale_write_hits_no_database_in_a_vault_but_one_in_the_shared_table() {
    let made = MadeDatabase::new("wal");
    let whole = made.bytes();
    // The runner's own are left alone; none of them has a number that the vault will use.
    let ours = numbers();
    let vault = opened(&made.path);
    let inside = vault.run(|_| numbers()).unwrap();
    let in_reach = inside.iter().filter(|number| (3..64).contains(*number));
    assert!(
        in_reach.count() >= 3,
        "{inside:?}: numbers that are written to"
    );
    assert_eq!(stale_writes(&ours), 0);
    let rows = vault.run(|connection| super::rows(connection).map(|rows| rows.len()));
    assert_eq!(rows, Ok(Some(200)));
    drop(vault);
    assert_eq!(made.bytes(), whole);
    assert_eq!(super::integrity(&made.path), "ok");

    // The same writes, with the same file in the shared table.
    let connection = Connection::open(&made.path).unwrap();
    assert!(stale_writes(&ours) >= 1);
    assert_ne!(made.bytes(), whole);
    drop(connection);
    assert_ne!(super::integrity(&made.path), "ok");
}

#[test]
fn work_that_panics_is_told_once_and_its_state_is_not_used_again() {
    let vault = Vault::start("vault", || Ok::<_, ()>(7)).unwrap().unwrap();
    assert_eq!(vault.run(|state| *state += 1), Ok(()));
    assert_eq!(vault.run(|state| *state), Ok(8));
    let panicked = vault.run(|state| assert_eq!(*state, 0, "on purpose"));
    assert!(
        matches!(&panicked, Err(vault::Error::Panicked(why)) if why.contains("on purpose")),
        "{panicked:?}"
    );
    assert_eq!(vault.run(|state| *state), Err(vault::Error::Gone));
}

#[test]
fn a_state_that_cannot_be_made_leaves_no_thread() {
    let base = threads();
    let refused = Vault::<()>::start("vault", || Err("no")).unwrap();
    assert_eq!(refused.unwrap_err(), "no");
    let panicked = Vault::<()>::start::<()>("vault", || panic!("on purpose"));
    assert!(matches!(panicked, Err(vault::Error::Panicked(_))));
    assert!(settles(|| threads() == base));
}

#[test]
fn signals_of_the_process_are_not_handled_in_a_vault() {
    let vault = Vault::start("vault", || Ok::<_, ()>(())).unwrap().unwrap();
    let status = vault.run(|()| fs::read_to_string("/proc/thread-self/status").unwrap());
    let status = status.unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
    let is_blocked = |signal: u32| mask & (1 << (signal - 1)) != 0;
    // HUP, INT, USR1, TERM, CHLD, WINCH; and SEGV, BUS, which a thread raises itself.
    for signal in [1, 2, 10, 15, 17, 28] {
        assert!(is_blocked(signal), "{signal}");
    }
    for signal in [7, 11] {
        assert!(!is_blocked(signal), "{signal}");
    }
}
