//! Shared by the tests: databases, damage, and a process that holds connections.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_files::{Inspection, Options, inspect};
use fdguard_probe::Probe;
use rusqlite::Connection;
use tempfile::TempDir;
use testkit::{Victim, VictimLaunch};

mod archive;
mod damage;
mod heal;
mod holders;
mod hostile;
mod jsonl;
mod lock;
mod plain;
mod pure;
mod random;
mod registry;
mod tls;
mod vault;
mod watch;

/// The alert that OpenSSL sends when it reads a database as a connection.
pub(crate) fn alert() -> Vec<u8> {
    record(&[0x17, 3, 3, 0, 19])
}

/// A record with this header.
pub(crate) fn record(head: &[u8; 5]) -> Vec<u8> {
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    let mut bytes = head.to_vec();
    bytes.extend((0..length).map(|n| (n * 151 + 77).to_le_bytes()[0]));
    bytes
}

/// A directory with a database.
pub(crate) struct MadeDatabase {
    pub(crate) dir: TempDir,
    pub(crate) path: PathBuf,
}

impl MadeDatabase {
    /// With rows, in this journal mode, and closed.
    pub(crate) fn new(mode: &str) -> Self {
        Self::with(mode, 4096, "")
    }

    pub(crate) fn with(mode: &str, page: u32, more: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.db");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "page_size", page).unwrap();
        connection
            .pragma_update_and_check(None, "journal_mode", mode, |_| Ok(()))
            .unwrap();
        connection
            .execute_batch(
                "PRAGMA user_version = 7; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);
                 WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200)
                 INSERT INTO t SELECT x, 'row ' || x || hex(zeroblob(40)) FROM n;",
            )
            .unwrap();
        connection.execute_batch(more).unwrap();
        connection.close().unwrap();
        Self { dir, path }
    }

    /// As a killed process leaves it: with a log, with or without page 1 in it.
    pub(crate) fn with_log(has_first_page: bool) -> Self {
        let made = Self::new("wal");
        let crashed = tempfile::tempdir().unwrap();
        let connection = Connection::open(&made.path).unwrap();
        connection
            .pragma_update(None, "wal_autocheckpoint", 0)
            .unwrap();
        // Page 1 goes into the log when the schema changes, or the database grows.
        let change = if has_first_page {
            "CREATE TABLE later(x); INSERT INTO later VALUES(1)"
        } else {
            "UPDATE t SET b = 'changed' WHERE a = 5"
        };
        connection.execute_batch(change).unwrap();
        for suffix in ["", "-wal"] {
            let name = format!("state.db{suffix}");
            fs::copy(made.dir.path().join(&name), crashed.path().join(&name)).unwrap();
        }
        connection.close().unwrap();
        let path = crashed.path().join("state.db");
        Self { dir: crashed, path }
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        write_at(&self.path, at, bytes);
    }

    pub(crate) fn inspect(&self) -> Inspection {
        look(&self.path)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap()
    }

    pub(crate) fn beside(&self, suffix: &str) -> PathBuf {
        self.dir.path().join(format!("state.db{suffix}"))
    }
}

pub(crate) fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

pub(crate) fn look(path: &Path) -> Inspection {
    inspect(&Probe::new().unwrap(), path, Options::default()).unwrap()
}

/// Everything that a reader can get from a database; `None` if SQLite refuses.
pub(crate) fn dump(path: &Path) -> Option<Vec<(i64, String)>> {
    rows(&Connection::open(path).ok()?)
}

pub(crate) fn rows(connection: &Connection) -> Option<Vec<(i64, String)>> {
    let mut statement = connection.prepare("SELECT a, b FROM t ORDER BY a").ok()?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .ok()?;
    rows.collect::<Result<_, _>>().ok()
}

pub(crate) fn integrity(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    connection
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap_or_else(|error: rusqlite::Error| error.to_string())
}

pub(crate) fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// The kernel takes a moment to remove a thread that was waited for.
pub(crate) fn settles(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !what() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

/// A Python process that runs each line it receives and replies with the value of `r`.
const SCRIPT: &str = r#"
import json, os, sqlite3, sys
print(json.dumps(dict(pid=os.getpid(), holdings=[])), flush=True)
g = globals()
g["r"] = None
for line in sys.stdin:
    try: exec(line, g)
    except Exception as e: g["r"] = f"{type(e).__name__}: {e}"
    print(json.dumps(g["r"]), flush=True)
"#;

/// Starts one with a connection `c` to this database.
pub(crate) fn holder(path: &Path) -> Victim {
    let mut victim = VictimLaunch::program(Path::new("python3"))
        .arg("-c")
        .arg(SCRIPT)
        .start();
    let connect = format!(
        "p={:?}; c=sqlite3.connect(p, isolation_level=None); r=c.execute('SELECT count(*) FROM t').fetchone()[0]",
        path.to_str().unwrap()
    );
    let rows = victim.tell(&connect);
    assert_eq!(rows, 200, "{rows}");
    victim
}
