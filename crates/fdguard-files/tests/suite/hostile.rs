//! What SQLite's own check finds, what it may cost, and where it cannot run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fdguard_files::check::CheckDepth;
use fdguard_files::heal::{HealOutcome, HealPlan};
use fdguard_files::{FileVerdict, Inspection, Options, inspect};
use fdguard_probe::Probe;
use rusqlite::Connection;
use testkit::software;

use super::{MadeDatabase, look};

/// A row that an index has under another value: the same number of entries, but not the same
/// entries.
fn with_stale_index() -> MadeDatabase {
    let made = MadeDatabase::new("delete");
    let steps = [
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = 'table', tbl_name = 'i', sql = 'CREATE TABLE i(x)' WHERE name = 'i'",
        "UPDATE t SET b = 'not in the index' WHERE a = 7",
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = 'index', tbl_name = 't', sql = 'CREATE INDEX i ON t(b)' WHERE name = 'i'",
    ];
    for step in steps {
        let connection = Connection::open(&made.path).unwrap();
        connection.execute_batch(step).unwrap();
        connection.close().unwrap();
    }
    made
}

#[test]
fn an_index_that_differs_from_its_table_is_found_by_default() {
    let made = with_stale_index();
    let found = made.inspect();
    assert_eq!(found.verdict, FileVerdict::Damaged, "{}", found.summary);
    assert_eq!(found.findings[0].rule, "integrity");
    let quick = Options {
        check: Some(CheckDepth::Quick),
        however_large: true,
    };
    let found = inspect(&Probe::new().unwrap(), &made.path, quick).unwrap();
    assert_eq!(found.verdict, FileVerdict::Healthy);
    assert!(found.summary.contains("quick_check"), "{}", found.summary);
    assert!(found.summary.contains("--check full"), "{}", found.summary);
    let sound = MadeDatabase::new("wal").inspect();
    assert!(
        sound.summary.contains("integrity_check reports ok"),
        "{}",
        sound.summary
    );
}

/// A small database with an index on an expensive expression: it is sound, and everything is
/// computed to find that out.
fn with_dear_index(dear: &str, rows: u32) -> MadeDatabase {
    let made = MadeDatabase::with("delete", 512, "");
    let connection = Connection::open(&made.path).unwrap();
    connection
        .execute_batch(&format!(
            "DROP TABLE t; CREATE TABLE h(a); CREATE INDEX i ON h(a);
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {rows})
             INSERT INTO h SELECT x FROM n; VACUUM; PRAGMA writable_schema = 1;
             UPDATE sqlite_schema SET sql = 'CREATE INDEX i ON h(a + 0 * ({dear}))' WHERE name = 'i';"
        ))
        .unwrap();
    connection.close().unwrap();
    assert!(fs::metadata(&made.path).unwrap().len() < 100_000);
    made
}

fn peak_memory_kib() -> u64 {
    fdguard_proc::status::number_of(&fs::read("/proc/self/status").unwrap(), b"VmHWM").unwrap()
}

fn why_unchecked(found: &Inspection) -> &str {
    let mut gaps = found.gaps.iter();
    let gap = gaps.find(|gap| gap.what.contains("integrity check"));
    gap.map_or("", |gap| &gap.why)
}

#[test]
fn a_small_hostile_database_cannot_take_all_memory() {
    let made = with_dear_index("length(hex(zeroblob(400000000 + a)))", 3);
    let found = made.inspect();
    assert!(peak_memory_kib() < 200_000, "{} KiB", peak_memory_kib());
    assert!(why_unchecked(&found).contains("too big"), "{found:?}");
    assert_eq!(found.verdict, FileVerdict::Healthy);
    assert!(found.summary.contains("was not run"), "{}", found.summary);
}

#[test]
fn a_small_hostile_database_cannot_take_all_time() {
    let one = "length(hex(hex(hex(zeroblob(4000 + a)))))";
    let made = with_dear_index(&[one; 50].join(" + "), 4000);
    let began = Instant::now();
    let found = made.inspect();
    // Twice, if a writer may exist; minutes without a limit.
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    assert!(
        why_unchecked(&found).contains("not finished after"),
        "{found:?}"
    );
}

/// A database made by the real SQLCipher.
fn encrypted(dir: &Path, setting: &str) -> Option<PathBuf> {
    let program = software("sqlcipher/usr/bin/sqlcipher")?;
    let libraries = program.parent()?.parent()?.join("lib");
    let library = fs::read_dir(libraries).ok()?.next()?.ok()?.path();
    let path = dir.join("secret.db");
    let sql = format!(
        "PRAGMA key = 'secret'; {setting} CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);
         WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 400)
         INSERT INTO t SELECT x, 'row ' || x FROM n;"
    );
    let made = Command::new(program)
        .env("LD_LIBRARY_PATH", library)
        .arg(&path)
        .arg(sql)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    Some(path)
}

#[test]
fn an_encrypted_database_is_not_called_damaged() {
    for setting in [
        "",
        "PRAGMA cipher_page_size = 4096;",
        "PRAGMA cipher_use_hmac = OFF;",
        "PRAGMA journal_mode = WAL;",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = encrypted(dir.path(), setting) else {
            return;
        };
        let found = look(&path);
        assert_eq!(found.verdict, FileVerdict::Encrypted, "{setting} {found:?}");
        assert!(!found.is_finding() && found.is_unread());
        let advice = found.next.join(" ");
        assert!(!advice.contains("heal"), "{advice}");
        assert!(found.gaps.iter().any(|gap| gap.why == "encrypted"));
        let before = fs::read(&path).unwrap();
        let healed =
            fdguard_files::heal(&Probe::new().unwrap(), &path, &HealPlan::default()).unwrap();
        assert_eq!(healed.outcome, HealOutcome::Unsure, "{healed:?}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}
