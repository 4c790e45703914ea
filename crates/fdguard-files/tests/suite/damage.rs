//! Every known kind of damage is detected and named.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use fdguard_core::lint::Severity;
use fdguard_files::{Error, FileVerdict, Kind, Options, inspect};
use fdguard_probe::Probe;
use rusqlite::Connection;

use super::{MadeDatabase, alert, look, record};

fn rules(made: &MadeDatabase) -> Vec<&'static str> {
    made.inspect().findings.iter().map(|one| one.rule).collect()
}

#[test]
fn r42_a_sound_database_is_healthy_in_every_mode() {
    for mode in ["delete", "truncate", "persist", "wal"] {
        for page in [512, 1024, 4096, 65536] {
            let made = MadeDatabase::with(mode, page, "");
            let found = made.inspect();
            assert_eq!(
                found.verdict,
                FileVerdict::Healthy,
                "{mode} {page}: {:?}",
                found.findings
            );
            assert!(found.findings.is_empty(), "{:?}", found.findings);
        }
    }
    for more in [
        "PRAGMA auto_vacuum = 1; VACUUM",
        "DELETE FROM t WHERE a > 20",
        "DELETE FROM t; VACUUM",
        "PRAGMA application_id = 386073344",
    ] {
        let made = MadeDatabase::with("delete", 4096, more);
        assert_eq!(made.inspect().verdict, FileVerdict::Healthy, "{more}");
    }
}

#[test]
fn r42_a_log_that_a_crash_left_is_no_damage() {
    for has_first_page in [true, false] {
        let made = MadeDatabase::with_log(has_first_page);
        let found = made.inspect();
        assert_eq!(found.verdict, FileVerdict::Healthy, "{:?}", found.findings);
        let wal = found.sqlite.unwrap().wal.unwrap();
        assert!(wal.committed_frames > 0);
        assert_eq!(wal.has_first_page, has_first_page);
        assert_eq!(
            (wal.valid_frames, wal.broken_at),
            (wal.committed_frames, None)
        );
        // The file was examined without touching it: an open would have created an index.
        assert!(!made.beside("-shm").exists());
    }
}

#[test]
fn r42_the_alert_of_the_real_incident_is_named() {
    for mode in ["delete", "wal"] {
        let made = MadeDatabase::new(mode);
        made.write(5, &alert());
        let found = made.inspect();
        assert_eq!(found.verdict, FileVerdict::Damaged);
        assert!(
            found.summary.starts_with("damaged: a TLS 1.3 alert (24 bytes) overwrites bytes 5..28 of the header: the TLS library read five bytes"),
            "{}",
            found.summary
        );
        assert!(
            found.next.iter().any(|step| step.contains("--heal")),
            "{:?}",
            found.next
        );
        assert!(
            found
                .sqlite
                .unwrap()
                .first_bytes
                .starts_with("53 51 4c 69 74 17 03 03 00 13")
        );
    }
}

#[test]
fn r42_records_of_every_kind_and_at_every_place_are_found() {
    let cases: [(u64, [u8; 5], &str); 6] = [
        (
            0,
            [0x17, 3, 3, 0, 19],
            "a TLS 1.3 alert (24 bytes) overwrites bytes 0..23",
        ),
        (
            0,
            [0x15, 3, 3, 0, 26],
            "a TLS 1.2 alert (31 bytes) overwrites bytes 0..30",
        ),
        (
            5,
            [0x15, 3, 3, 0, 26],
            "a TLS 1.2 alert (31 bytes) overwrites bytes 5..35",
        ),
        (
            0,
            [0x17, 3, 3, 1, 44],
            "a TLS 1.2 or 1.3 data record (305 bytes)",
        ),
        (0, [0x16, 3, 1, 0, 80], "a TLS 1.0 handshake record"),
        (10, [0x14, 3, 3, 0, 1], "change-cipher"),
    ];
    for (at, head, text) in cases {
        let made = MadeDatabase::new("delete");
        made.write(at, &record(&head));
        let found = made.inspect();
        assert_eq!(found.verdict, FileVerdict::Damaged);
        assert_eq!(
            (found.findings[0].rule, found.findings[0].offset),
            ("tls-record", Some(at))
        );
        assert!(found.summary.contains(text), "{}", found.summary);
    }
    let made = MadeDatabase::new("delete");
    for k in 0..3 {
        made.write(5 + 29 * k, &alert());
    }
    let offsets: Vec<u64> = made
        .inspect()
        .findings
        .iter()
        .filter(|one| one.rule == "tls-record")
        .filter_map(|one| one.offset)
        .collect();
    assert_eq!(offsets, [5, 34, 63]);
}

#[test]
fn r42_a_record_anywhere_in_the_header_is_noticed() {
    let made = MadeDatabase::new("delete");
    let whole = made.bytes();
    for at in 0..96 {
        fs::write(&made.path, &whole).unwrap();
        made.write(at, &alert());
        let options = Options {
            check: None,
            ..Options::default()
        };
        let found = inspect(&Probe::new().unwrap(), &made.path, options).unwrap();
        assert_eq!(found.verdict, FileVerdict::Damaged, "at {at}");
        assert!(
            found
                .findings
                .iter()
                .any(|one| one.rule == "tls-record" && one.offset == Some(at)),
            "at {at}: {:?}",
            found.findings
        );
    }
}

#[test]
fn r42_a_record_at_the_start_of_a_page_is_found() {
    let made = MadeDatabase::new("delete");
    made.write(4096 * 2, &record(&[0x17, 3, 3, 0, 200]));
    let found = made.inspect();
    assert_eq!(found.verdict, FileVerdict::Damaged);
    assert_eq!(
        (found.findings[0].rule, found.findings[0].offset),
        ("tls-record", Some(8192))
    );
}

#[test]
fn r42_other_foreign_bytes_are_named() {
    let cases: [(&[u8], &str); 8] = [
        (
            b"GET /v1/messages HTTP/1.1\r\nHost: api\r\n",
            "an HTTP request",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: x\r\n",
            "an HTTP response",
        ),
        (
            b"{\"type\":\"user\",\"message\":\"hello\"}\n",
            "a line of JSON",
        ),
        (
            b"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00",
            "ELF",
        ),
        (b"\x1f\x8b\x08\x00\x01\x02\x03\x04\x05\x06", "gzip"),
        (b"\x28\xb5\x2f\xfd\x04\x58\x01\x02\x03\x04", "zstd"),
        (
            b"2026-11-15 12:00:00,123 ERROR something went wrong\n",
            "plain text",
        ),
        (&[0; 100], "zeros"),
    ];
    for (bytes, text) in cases {
        for (mode, at) in [("delete", 0), ("wal", 0), ("delete", 4096)] {
            let made = MadeDatabase::new(mode);
            made.write(at, bytes);
            let found = made.inspect();
            assert_eq!(found.verdict, FileVerdict::Damaged, "{text} at {at}");
            let is_named = found.findings.iter().any(|one| one.message.contains(text));
            assert!(
                is_named || (at > 0 && text == "zeros"),
                "{text} at {at}: {:?}",
                found.findings
            );
        }
    }
}

#[test]
fn r42_a_cut_tail_and_missing_pages_are_told() {
    let made = MadeDatabase::new("delete");
    let size = made.bytes().len() as u64;
    let file = fs::OpenOptions::new().write(true).open(&made.path).unwrap();
    file.set_len(size - 1000).unwrap();
    assert!(rules(&made).contains(&"torn-tail"));
    file.set_len(size - 8192).unwrap();
    let found = made.inspect();
    assert!(found.summary.contains("2 are missing"), "{}", found.summary);
}

#[test]
fn r45_an_empty_file_is_not_called_healthy_and_one_with_a_log_is_damaged() {
    let made = MadeDatabase::with_log(true);
    fs::OpenOptions::new()
        .write(true)
        .open(&made.path)
        .unwrap()
        .set_len(0)
        .unwrap();
    assert_eq!(rules(&made), ["truncated"]);
    fs::remove_file(made.beside("-wal")).unwrap();
    let found = made.inspect();
    assert_eq!(
        (found.kind, found.verdict),
        (Kind::Empty, FileVerdict::Clean)
    );
}

#[test]
fn r42_a_damaged_log_is_told_and_old_frames_behind_it_are_not_taken_for_damage() {
    let made = MadeDatabase::with_log(true);
    let log = made.beside("-wal");
    let whole = fs::read(&log).unwrap();
    super::write_at(&log, 32 + 24 + 700, b"damage");
    assert_eq!(rules(&made)[0], "wal-chain");
    fs::write(&log, &whole).unwrap();
    super::write_at(&log, 0, &alert());
    let found = made.inspect();
    assert!(
        found
            .summary
            .contains("it holds a TLS 1.3 alert (24 bytes)"),
        "{}",
        found.summary
    );
    // A restarted log has older frames after its end.
    let made = MadeDatabase::new("wal");
    let connection = Connection::open(&made.path).unwrap();
    for round in 0..2 {
        for n in 0..20 - 15 * round {
            connection
                .execute("UPDATE t SET b = b || 'x' WHERE a = ?1", [n])
                .unwrap();
        }
        connection
            .query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
            .unwrap();
    }
    connection
        .execute("UPDATE t SET b = 'z' WHERE a = 1", [])
        .unwrap();
    let found = made.inspect();
    let wal = found.sqlite.as_ref().unwrap().wal.clone().unwrap();
    assert!(wal.size > 32 + 4120 * wal.valid_frames, "{wal:?}");
    assert_eq!(found.verdict, FileVerdict::Healthy, "{:?}", found.findings);
}

#[test]
fn a_hot_journal_is_no_damage() {
    let made = MadeDatabase::new("delete");
    let copy = tempfile::tempdir().unwrap();
    let connection = Connection::open(&made.path).unwrap();
    connection.execute_batch("PRAGMA cache_size = 1; PRAGMA cache_spill = 1; BEGIN; UPDATE t SET b = b || 'much longer than before'").unwrap();
    for suffix in ["", "-journal"] {
        let name = format!("state.db{suffix}");
        fs::copy(made.dir.path().join(&name), copy.path().join(&name)).unwrap();
    }
    let found = look(&copy.path().join("state.db"));
    assert!(
        found
            .sqlite
            .as_ref()
            .unwrap()
            .journal
            .as_ref()
            .unwrap()
            .is_hot
    );
    assert_eq!(found.verdict, FileVerdict::Healthy, "{:?}", found.findings);
    assert_eq!(found.findings[0].rule, "hot-journal");
}

#[test]
fn r45_what_cannot_be_read_is_no_damage() {
    let probe = Probe::new().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let gone = inspect(&probe, &dir.path().join("none.db"), Options::default());
    assert!(matches!(gone, Err(Error::Io { .. })), "{gone:?}");
    let directory = inspect(&probe, dir.path(), Options::default());
    assert!(
        matches!(
            directory,
            Err(Error::NotAFile {
                what: "a directory",
                ..
            })
        ),
        "{directory:?}"
    );
    let device = inspect(
        &probe,
        std::path::Path::new("/dev/null"),
        Options::default(),
    );
    assert!(matches!(device, Err(Error::NotAFile { .. })), "{device:?}");
    if !testkit::is_root() {
        let made = MadeDatabase::new("delete");
        fs::set_permissions(&made.path, fs::Permissions::from_mode(0o0)).unwrap();
        let denied = inspect(&probe, &made.path, Options::default());
        assert!(matches!(denied, Err(Error::Io { .. })), "{denied:?}");
    }
}

#[test]
fn an_index_that_lacks_a_row_is_found_by_sqlite_s_own_check() {
    let made = MadeDatabase::new("delete");
    // A row is inserted while the schema does not know the index.
    let steps = [
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = 'table', tbl_name = 'i', sql = 'CREATE TABLE i(x)' WHERE name = 'i'",
        "INSERT INTO t VALUES(1000, 'not in the index')",
        "PRAGMA writable_schema = 1; UPDATE sqlite_schema SET type = 'index', tbl_name = 't', sql = 'CREATE INDEX i ON t(b)' WHERE name = 'i'",
    ];
    for step in steps {
        let connection = Connection::open(&made.path).unwrap();
        connection.execute_batch(step).unwrap();
        connection.close().unwrap();
    }
    let options = Options {
        check: None,
        ..Options::default()
    };
    let unchecked = inspect(&Probe::new().unwrap(), &made.path, options).unwrap();
    assert_eq!(unchecked.verdict, FileVerdict::Healthy);
    assert!(
        unchecked.summary.contains("was not run"),
        "{}",
        unchecked.summary
    );
    let found = made.inspect();
    assert_eq!(found.verdict, FileVerdict::Damaged);
    let told = &found.findings[0];
    assert_eq!(
        (told.rule, told.severity),
        ("integrity", Severity::Critical)
    );
    assert!(told.message.contains("index i"), "{}", told.message);
}
