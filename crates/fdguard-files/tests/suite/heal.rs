//! Healing: what can be healed is intact again, everything else is refused and untouched.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use fdguard_files::heal::{HealOutcome, HealPlan, HealResult};
use fdguard_files::{FileVerdict, heal};
use fdguard_probe::Probe;
use rusqlite::Connection;

use super::{MadeDatabase, alert, dump, holder, integrity, record};

fn healed(path: &Path) -> HealResult {
    heal(&Probe::new().unwrap(), path, &HealPlan::default()).unwrap()
}

#[test]
fn r45_the_alert_is_healed_byte_by_byte() {
    for mode in ["delete", "wal"] {
        for page in [512, 1024, 4096, 65536] {
            let made = MadeDatabase::with(mode, page, "");
            let before = made.bytes();
            made.write(5, &alert());
            let damaged = made.bytes();
            fs::set_permissions(&made.path, fs::Permissions::from_mode(0o640)).unwrap();
            let said = healed(&made.path);
            assert_eq!(said.outcome, HealOutcome::Healed, "{mode} {page}: {said:?}");
            let after = made.bytes();
            // Without a header and without a log it is unknown whether the database used a log.
            assert_eq!(after[..18], before[..18]);
            assert_eq!(after[20..], before[20..], "{mode} {page}");
            assert_eq!(fs::metadata(&made.path).unwrap().mode() & 0o777, 0o640);
            assert_eq!(
                fs::read(said.backup.unwrap().join("database")).unwrap(),
                damaged
            );
            assert_eq!(made.inspect().verdict, FileVerdict::Healthy);
            assert!(dump(&made.path).is_some_and(|rows| rows.len() == 200));
        }
    }
}

#[test]
fn r45_a_log_with_page_1_heals_by_a_checkpoint_and_keeps_its_transactions() {
    for (has_first_page, by) in [(true, "checkpoint"), (false, "rebuilding the header")] {
        let made = MadeDatabase::with_log(has_first_page);
        made.write(5, &alert());
        let log = fs::read(made.beside("-wal")).unwrap();
        let said = healed(&made.path);
        assert_eq!(said.outcome, HealOutcome::Healed, "{said:?}");
        assert!(said.message.contains(by), "{}", said.message);
        assert!(
            !made.beside("-wal").exists(),
            "its transactions are in the database"
        );
        assert_eq!(
            fs::read(said.backup.unwrap().join("database-wal")).unwrap(),
            log
        );
        let connection = Connection::open(&made.path).unwrap();
        let is_there: bool = if has_first_page {
            connection
                .query_row("SELECT x = 1 FROM later", [], |row| row.get(0))
                .unwrap()
        } else {
            connection
                .query_row("SELECT b = 'changed' FROM t WHERE a = 5", [], |row| {
                    row.get(0)
                })
                .unwrap()
        };
        assert!(is_there);
    }
}

#[test]
fn r45_the_longer_alert_takes_the_list_of_free_pages_and_it_is_found_again() {
    let more = "CREATE TABLE big(x); WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900) INSERT INTO big SELECT zeroblob(900) FROM n; DELETE FROM big";
    let made = MadeDatabase::with("delete", 1024, more);
    let free = u32::from_be_bytes(made.bytes()[36..40].try_into().unwrap());
    assert!(free > 500, "{free} free pages, in more than one trunk");
    let before = made.bytes();
    made.write(5, &record(&[0x15, 3, 3, 0, 26]));
    let said = healed(&made.path);
    assert_eq!(said.outcome, HealOutcome::Healed, "{said:?}");
    assert_eq!(made.bytes(), before);
    // Two events: count, cookie and encoding are gone as well.
    made.write(5, &alert());
    made.write(34, &alert());
    let said = healed(&made.path);
    assert_eq!(said.outcome, HealOutcome::Healed, "{said:?}");
    assert_eq!(integrity(&made.path), "ok");
}

#[test]
fn r45_what_cannot_be_healed_is_refused_and_untouched() {
    let cases: [(u64, Vec<u8>, &str); 4] = [
        (0, record(&[0x17, 3, 3, 4, 0]), "cannot be reconstructed"),
        (90, vec![0; 200], "page 1"),
        (4096, record(&[0x17, 3, 3, 2, 0]), "extends beyond"),
        (
            5,
            [alert(), vec![0; 5], alert(), vec![0; 5], alert()].concat(),
            "cannot be reconstructed",
        ),
    ];
    for (at, bytes, why) in cases {
        let made = MadeDatabase::new("delete");
        made.write(at, &bytes);
        let damaged = made.bytes();
        let said = healed(&made.path);
        assert_eq!(said.outcome, HealOutcome::Refused, "{said:?}");
        assert!(said.message.contains(why), "{}", said.message);
        assert_eq!(made.bytes(), damaged);
    }
    let made = MadeDatabase::with_log(true);
    super::write_at(&made.beside("-wal"), 32 + 24 + 700, b"damage");
    let said = healed(&made.path);
    assert_eq!(said.outcome, HealOutcome::Refused);
    assert!(
        said.message.contains("discard these transactions"),
        "{}",
        said.message
    );
    fs::write(made.path.with_extension("db2"), "").unwrap();
}

#[test]
fn r45_an_empty_file_is_not_replaced_by_an_empty_database() {
    let made = MadeDatabase::new("delete");
    fs::write(&made.path, "").unwrap();
    let said = healed(&made.path);
    assert_eq!(said.outcome, HealOutcome::Refused);
    assert_eq!(made.bytes(), b"");
}

#[test]
fn r45_a_sound_database_is_left_alone() {
    let made = MadeDatabase::new("wal");
    let before = made.bytes();
    assert_eq!(healed(&made.path).outcome, HealOutcome::NothingToDo);
    assert_eq!(made.bytes(), before);
    let names: Vec<_> = fs::read_dir(made.dir.path())
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    assert_eq!(names, ["state.db"], "no lock file, no backup");
}

#[test]
fn r45_a_database_with_live_holders_is_never_healed() {
    let made = MadeDatabase::new("wal");
    let victim = holder(&made.path);
    assert_eq!(healed(&made.path).outcome, HealOutcome::NothingToDo);
    made.write(5, &alert());
    let damaged = made.bytes();
    let said = healed(&made.path);
    assert_eq!(said.outcome, HealOutcome::Refused, "{said:?}");
    assert!(
        said.message.contains(&format!("pid {}", victim.pid())),
        "{}",
        said.message
    );
    assert_eq!(made.bytes(), damaged);
    drop(victim);
    assert_eq!(healed(&made.path).outcome, HealOutcome::Healed);
}

#[test]
fn r45_a_dry_run_changes_nothing() {
    let made = MadeDatabase::new("delete");
    made.write(5, &alert());
    let damaged = made.bytes();
    let plan = HealPlan {
        dry_run: true,
        ..HealPlan::default()
    };
    let said = heal(&Probe::new().unwrap(), &made.path, &plan).unwrap();
    assert_eq!((said.outcome, said.backup), (HealOutcome::WouldHeal, None));
    assert_eq!(made.bytes(), damaged);
    let names: Vec<_> = fs::read_dir(made.dir.path())
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    assert_eq!(names, ["state.db"]);
}

#[test]
fn r45_ten_backups_are_kept_and_the_same_content_once() {
    let made = MadeDatabase::new("delete");
    let whole = made.bytes();
    let mut last = None;
    for round in 0..13u8 {
        fs::write(&made.path, &whole).unwrap();
        let mut bytes = alert();
        bytes[23] = round;
        made.write(5, &bytes);
        for _ in 0..2 {
            let damaged = made.bytes();
            let backup = heal::backup::make(&made.path, &made.beside(".fdguard-backups")).unwrap();
            assert_eq!(fs::read(backup.join("database")).unwrap(), damaged);
            last = Some(backup);
        }
    }
    let kept = fs::read_dir(made.beside(".fdguard-backups"))
        .unwrap()
        .count();
    assert_eq!(kept, 10);
    assert!(last.unwrap().exists());
}

#[test]
fn r45_a_name_that_others_share_is_refused() {
    let made = MadeDatabase::new("delete");
    fs::hard_link(&made.path, made.beside("-link")).unwrap();
    made.write(5, &alert());
    let said = healed(&made.path);
    assert_eq!(said.outcome, HealOutcome::Refused);
    assert!(said.message.contains("2 hard links"), "{}", said.message);
}

#[test]
fn r45_one_repair_at_a_time() {
    let made = MadeDatabase::new("delete");
    made.write(5, &alert());
    let said: Vec<HealResult> = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| healed(&made.path)));
        both.map(|one| one.join().unwrap()).into()
    });
    let count = |outcome| said.iter().filter(|one| one.outcome == outcome).count();
    assert_eq!(
        (count(HealOutcome::Healed), count(HealOutcome::NothingToDo)),
        (1, 1),
        "{said:?}"
    );
}

#[test]
fn odd_names_are_names() {
    use std::os::unix::ffi::OsStrExt as _;
    let made = MadeDatabase::new("delete");
    let name = std::ffi::OsStr::from_bytes(b"a b%20?mode=rw#x\xff.db");
    let path = made.dir.path().join(name);
    fs::rename(&made.path, &path).unwrap();
    let found = super::look(&path);
    assert_eq!(found.verdict, FileVerdict::Healthy);
    assert!(
        found
            .sqlite
            .unwrap()
            .check
            .is_some_and(|check| check.ok && !check.copied)
    );
    super::write_at(&path, 5, &alert());
    assert_eq!(healed(&path).outcome, HealOutcome::Healed);
}
