//! Ten thousand damages by chance: SQLite is the oracle.

use std::fs;

use fdguard_files::heal::{Outcome, Plan};
use fdguard_files::{Verdict, heal, inspect};
use fdguard_probe::Probe;

use super::{Made, alert, dump, integrity, record};

/// A generator whose seed is in the message of a failure.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[3]
    }
}

/// Bytes that change, somewhere; mostly in the header.
fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let size = bytes.len();
    let at = if chance.below(4) > 0 {
        chance.below(100)
    } else {
        chance.below(size)
    };
    match chance.below(6) {
        0 => bytes[at] ^= 1 << chance.below(8),
        1 => bytes[at] = chance.byte(),
        2 => {
            let length = chance.below(64).min(size - at);
            for one in &mut bytes[at..at + length] {
                *one = chance.byte();
            }
        }
        3 => {
            let length = chance.below(200).min(size - at);
            bytes[at..at + length].fill(0);
        }
        4 => {
            let new = if chance.below(2) == 0 {
                alert()
            } else {
                record(&[0x15, 3, 3, 0, 26])
            };
            let length = new.len().min(size - at);
            bytes[at..at + length].copy_from_slice(&new[..length]);
        }
        _ => bytes.truncate(chance.below(size)),
    }
}

/// What SQLite makes of these bytes: whether its check says ok, and the rows.
fn oracle(bytes: &[u8], path: &std::path::Path) -> (bool, Option<Vec<(i64, String)>>) {
    fs::write(path, bytes).unwrap();
    let said = rusqlite::Connection::open(path).and_then(|connection| {
        connection.query_row("PRAGMA quick_check", [], |row| row.get::<_, String>(0))
    });
    let answer = (said.is_ok_and(|said| said == "ok"), dump(path));
    for suffix in ["-wal", "-shm", "-journal"] {
        drop(fs::remove_file(format!("{}{suffix}", path.display())));
    }
    answer
}

/// The header must be noticed wherever its damage makes SQLite refuse, complain or read something else; only the change counter,
/// the schema cookie, the cache size, the numbers of the application and the writer's version are free.
#[test]
fn r42_ten_thousand_damages_are_survived_and_no_damaged_header_is_healthy() {
    let probe = Probe::new().unwrap();
    let bases = [
        Made::new("delete"),
        Made::with("wal", 1024, "DELETE FROM t WHERE a % 3 = 0"),
    ];
    let whole: Vec<Vec<u8>> = bases.iter().map(Made::bytes).collect();
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["damaged.db", "oracle.db"].map(|name| folder.path().join(name));
    let good: Vec<_> = whole.iter().map(|bytes| oracle(bytes, &other)).collect();
    let mut chance = Chance(0x5eed_f00d_1234_5678);
    let mut damaged = 0;
    for round in 0..10_000 {
        let base = round % 2;
        let mut bytes = whole[base].clone();
        damage(&mut bytes, &mut chance);
        fs::write(&path, &bytes).unwrap();
        // All that is pure for each of them; processes and SQLite's check for one in ten, or where it matters.
        let file = fdguard_files::read::open(&path).unwrap();
        let found = fdguard_files::read::image(&path, &file).unwrap().judge();
        let is_noticed = found
            .iter()
            .any(|one| one.severity >= fdguard_core::lint::Severity::Warning);
        damaged += usize::from(is_noticed);
        let is_in_header = bytes.len() < 100 || bytes[..100] != whole[base][..100];
        if is_noticed && round % 10 > 0 {
            continue;
        }
        let seen = inspect(&probe, &path, fdguard_files::Options::default()).unwrap();
        let is_fine = matches!(seen.verdict, Verdict::Healthy | Verdict::Clean);
        if !is_fine || bytes.is_empty() {
            continue;
        }
        let judged = oracle(&bytes, &other);
        assert!(judged.0, "round {round}: called {:?}", seen.summary);
        // Elsewhere a byte of a row may be another one, and nobody can know.
        if is_in_header {
            assert_eq!(
                judged, good[base],
                "round {round}: called {:?}",
                seen.summary
            );
        }
    }
    assert!(
        damaged > 5000,
        "{damaged} of 10000 were noticed by their bytes"
    );
}

#[test]
fn r45_healing_never_makes_it_worse() {
    let probe = Probe::new().unwrap();
    let base = Made::with("delete", 1024, "DELETE FROM t WHERE a % 3 = 0");
    let whole = base.bytes();
    let good = dump(&base.path).unwrap();
    let mut chance = Chance(0xbad_c0ffee);
    let mut healed = 0;
    for round in 0..200 {
        let made = Made {
            path: base.folder.path().join(format!("{round}.db")),
            folder: tempfile::tempdir().unwrap(),
        };
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut chance);
        fs::write(&made.path, &bytes).unwrap();
        let plan = Plan {
            backup_dir: Some(made.folder.path().join("backups")),
            ..Plan::default()
        };
        let said = heal(&probe, &made.path, &plan).unwrap();
        if let Some(backup) = &said.backup {
            assert_eq!(
                fs::read(backup.join("database")).unwrap(),
                bytes,
                "round {round}"
            );
        }
        if said.outcome == Outcome::Healed {
            healed += 1;
            assert_eq!(integrity(&made.path), "ok", "round {round}");
            let is_header = bytes.len() == whole.len() && bytes[100..] == whole[100..];
            assert!(
                !is_header || dump(&made.path).as_ref() == Some(&good),
                "round {round}: {}",
                said.message
            );
        } else {
            assert_eq!(
                fs::read(&made.path).unwrap(),
                bytes,
                "round {round}: {said:?}"
            );
        }
        fs::remove_file(&made.path).unwrap();
    }
    assert!(healed > 20, "{healed} of 200 were healed");
    let left: Vec<_> = fs::read_dir(base.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["state.db"], "nothing is left behind");
}
