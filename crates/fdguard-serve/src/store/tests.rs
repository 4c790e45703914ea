//! The history survives what happens to files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::file::{StoreFile, StoreOptions};
use super::{Attachments, StoreWriter, read_findings, read_history, read_moment, read_services};
use crate::finding_book::{AcceptedFinding, FindingKey, FindingState};
use crate::history_record::{FindingNote, HistoryBatch, HistoryEvent, HistorySample};
use crate::overview::{ClassTally, TargetTally};
use crate::service::{ServiceKey, ServiceKind};
use crate::trace_keeper::{TraceNote, TracedLine};

pub(super) fn options(path: &Path, max_disk: u64) -> StoreOptions {
    StoreOptions {
        path: path.to_owned(),
        keep: Duration::from_secs(7 * 86_400),
        max_disk,
    }
}

pub(super) fn minute(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
}

pub(super) fn web() -> ServiceKey {
    ServiceKey::new(ServiceKind::Unit, "web.service")
}

pub(super) fn batch(at: i64, services: usize) -> HistoryBatch {
    let sample = |n: usize| {
        let sample = HistorySample {
            at: minute(at),
            processes: 2,
            open_fds: Some(u64::try_from(at).unwrap_or(0) + 10),
            limit: Some(1024),
            usage_ratio: Some(0.5),
            verdict: "growing".to_owned(),
            classes: Some(vec![ClassTally {
                class: "pipe".to_owned(),
                count: 3,
            }]),
            targets: Some(vec![TargetTally {
                class: "pipe".to_owned(),
                target: Some("pipe".into()),
                count: 3,
            }]),
        };
        let name = if n == 0 {
            "web.service".to_owned()
        } else {
            format!("s{n}.service")
        };
        (ServiceKey::new(ServiceKind::Unit, name), sample)
    };
    HistoryBatch {
        samples: (0..services).map(sample).collect(),
        events: Vec::new(),
    }
}

pub(super) fn opened(at: i64) -> HistoryEvent {
    HistoryEvent {
        at: minute(at),
        event: "opened".to_owned(),
        text: "leak".to_owned(),
        deploy: None,
        finding: Some(FindingNote {
            id: 41,
            rule: "leak".to_owned(),
            severity: "critical".to_owned(),
            class: Some("pipe".to_owned()),
            target: None,
            pid: Some(7),
            comm: Some("web".into()),
            count: Some(40),
            opened_at: None,
        }),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, aside) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    assert_eq!(aside, None);
    for at in 0..50 {
        file.write(&batch(at, 3)).unwrap();
    }
    let events = HistoryBatch {
        events: vec![(web(), opened(50))],
        ..HistoryBatch::default()
    };
    file.write(&events).unwrap();
    // Targets are read one moment at a time.
    let seventh = HistorySample {
        targets: None,
        ..batch(7, 1).samples[0].1.clone()
    };
    // A reader does not disturb the writer, nor the other way round.
    for name in ["web", "web.service", "unit web.service", "unit:web.service"] {
        let found = read_history(&path, name, None).unwrap();
        assert_eq!(found.len(), 1, "{name}");
        assert_eq!(found[0].samples.len(), 50);
        assert_eq!(found[0].samples[7], seventh);
        assert_eq!(found[0].events, [opened(50)]);
        assert!(found[0].onset.is_some());
    }
    assert!(read_history(&path, "we", None).unwrap().is_empty());
    let recent = read_history(&path, "web", Some(minute(40))).unwrap();
    assert_eq!(recent[0].samples.len(), 10);
    assert_eq!(read_services(&path).unwrap().len(), 3);
    let (_, highest) = file.accepted().unwrap();
    assert_eq!(highest, 41, "numbers of findings continue");
}

#[test]
fn a_history_of_any_name_opens_where_nothing_can_be_written() {
    let dir = tempfile::tempdir().unwrap();
    for name in [&b"50%25 a.db"[..], b"what?.db", b"a#1&b=c.db", b"\xff.db"] {
        let path = dir.path().join(OsStr::from_bytes(name));
        let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
        let events = HistoryBatch {
            events: vec![(web(), opened(50))],
            ..HistoryBatch::default()
        };
        file.write(&events).unwrap();
        drop(file);
        let kept = StoreFile::open_unchangeable(options(&path, 1 << 26));
        let (_, highest) = kept.expect("it opens").accepted().unwrap();
        assert_eq!(highest, 41, "{}", path.display());
    }
}

#[test]
fn a_killed_writer_leaves_a_file_that_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    for at in 0..20 {
        file.write(&batch(at, 2)).unwrap();
    }
    // The files as they are on disk while the writer runs: what a kill leaves.
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(dir.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    drop(file);
    let left = copy.path().join("history.db");
    let (_file, aside) = StoreFile::open(options(&left, 1 << 26), minute(21)).unwrap();
    assert_eq!(aside, None);
    assert_eq!(
        read_history(&left, "web", None).unwrap()[0].samples.len(),
        20
    );
}

#[test]
fn a_damaged_file_is_set_aside_and_a_new_one_begun() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let write = |at| {
        let (mut file, aside) = StoreFile::open(options(&path, 1 << 26), minute(at)).unwrap();
        file.write(&batch(at, 500)).unwrap();
        aside
    };
    assert_eq!(write(1), None);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[4096..middle].fill(0xAA);
    fs::write(&path, &bytes).unwrap();
    let aside = write(2).expect("the damage is noticed");
    assert!(aside.to.is_file() && aside.to.to_string_lossy().contains("history.db.damaged-"));
    fs::write(
        &path,
        b"this was never a database, but has more than a few bytes of text",
    )
    .unwrap();
    drop(fs::remove_file(dir.path().join("history.db-wal")));
    assert!(write(3).is_some());
    let found = read_history(&path, "web", None).unwrap();
    assert_eq!(found[0].samples.len(), 1);
}

#[test]
fn the_size_stays_below_its_bound_and_the_oldest_rows_go_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let bound = 1 << 20;
    let (file, _) = StoreFile::open(options(&path, bound), minute(0)).unwrap();
    let writer = StoreWriter::start(file).unwrap();
    for at in 0..400 {
        writer.write(minute(at), batch(at, 100));
    }
    drop(writer);
    let database = fs::metadata(&path).unwrap().len();
    assert!(database <= bound, "{database}");
    let samples = &read_history(&path, "web", None).unwrap()[0].samples;
    assert!(samples.len() < 400);
}

#[test]
fn a_file_from_the_time_of_a_larger_limit_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    for at in 0..100 {
        file.write(&batch(at, 200)).unwrap();
    }
    drop(file);
    let before = fs::metadata(&path).unwrap().len();
    let bound = 1 << 20;
    assert!(before > 2 * bound, "{before}");
    let (mut file, _) = StoreFile::open(options(&path, bound), minute(100)).unwrap();
    file.trim(minute(100)).unwrap();
    assert!(file.bytes() <= bound, "{}", file.bytes());
    file.write(&batch(101, 1)).unwrap();
    let samples = &read_history(&path, "web", None).unwrap()[0].samples;
    assert_eq!(
        samples.last().unwrap().at,
        minute(101),
        "the newest are kept"
    );
}

#[test]
fn old_rows_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    file.write(&batch(0, 2)).unwrap();
    let day = 24 * 60;
    file.write(&batch(9 * day, 1)).unwrap();
    file.trim(minute(9 * day)).unwrap();
    assert_eq!(read_services(&path).unwrap(), [web()]);
    assert_eq!(
        read_history(&path, "web", None).unwrap()[0].samples.len(),
        1
    );
}

#[test]
fn what_had_no_room_is_counted_and_written_down_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (file, _) = StoreFile::open(options(&path, 1 << 18), minute(0)).unwrap();
    let writer = StoreWriter::start(file).unwrap();
    // More than the whole file may hold: as on a disk that is full.
    writer.write(minute(1), batch(1, 20_000));
    writer.write(minute(2), batch(2, 1));
    let mut seen = writer.health();
    while seen.lost_rows == 0 {
        std::thread::yield_now();
        seen = writer.health();
    }
    drop(writer);
    assert_eq!(seen.lost_rows, 20_000);
    let found = &read_history(&path, "web", None).unwrap()[0];
    assert_eq!(found.samples.len(), 1);
    assert_eq!((found.losses.len(), found.losses[0].rows), (1, 20_000));
    assert!(found.losses[0].why.contains("full"), "{:?}", found.losses);
}

#[test]
fn what_the_queue_had_no_room_for_is_written_down_too() {
    const BATCHES: i64 = 300;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    let writer = StoreWriter::start(file).unwrap();
    // Another program writes the file: the thread waits for it, and the queue fills.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for at in 0..BATCHES {
        writer.write(minute(at), batch(at, 1));
    }
    let lost = writer.health().lost_rows;
    assert!(lost > 0, "the queue took everything");
    other.execute_batch("ROLLBACK").unwrap();
    drop(other);
    drop(writer);
    let found = &read_history(&path, "web", None).unwrap()[0];
    let missing: u64 = found.losses.iter().map(|loss| loss.rows).sum();
    assert!(missing >= lost, "{:?}", found.losses);
    assert_eq!(found.samples.len() as u64 + missing, BATCHES as u64);
    let is_named = |why: &str| why.contains("the disk does not keep up");
    assert!(found.losses.iter().any(|loss| is_named(&loss.why)));
}

#[test]
fn two_losses_of_one_moment_are_both_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    file.write(&batch(1, 1)).unwrap();
    file.write_loss(minute(1), 7, "full").unwrap();
    file.write_loss(minute(1), 0, "the clock was set").unwrap();
    let losses = &read_history(&path, "web", None).unwrap()[0].losses;
    assert_eq!((losses.len(), losses[0].rows), (1, 7));
    assert_eq!(losses[0].why, "full; the clock was set");
}

#[test]
fn a_clock_that_was_set_is_a_gap_of_the_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    let writer = StoreWriter::start(file).unwrap();
    writer.write(minute(90), batch(90, 1));
    writer.note(minute(30), "the clock was set back by 3600 s".to_owned());
    writer.write(minute(31), batch(31, 1));
    drop(writer);
    let found = &read_history(&path, "web", None).unwrap()[0];
    assert_eq!(found.samples.len(), 2, "nothing was overwritten");
    let loss = &found.losses[0];
    assert_eq!((loss.at, loss.rows), (minute(30), 0));
    assert!(loss.why.contains("set back"), "{loss:?}");
}

#[test]
fn a_kept_moment_has_its_targets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    for at in [10, 20] {
        file.write(&batch(at, 2)).unwrap();
    }
    let at = |at: i64| read_moment(&path, &web(), minute(at)).unwrap();
    assert_eq!(at(9), None, "older than everything");
    let found = at(19).unwrap();
    assert_eq!(
        (found.sample.at, found.sample.open_fds),
        (minute(10), Some(20))
    );
    assert_eq!(found.targets, batch(10, 1).samples[0].1.targets);
    assert_eq!(at(1000).unwrap().sample.at, minute(20));
}

#[test]
fn a_history_of_the_layout_before_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    file.write(&batch(1, 1)).unwrap();
    drop(file);
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch(
        "ALTER TABLE sample DROP COLUMN targets; DROP TABLE serving; DROP TABLE running;
         DROP TABLE attachment;
         PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(old);
    let (mut file, aside) = StoreFile::open(options(&path, 1 << 26), minute(2)).unwrap();
    assert_eq!(aside, None);
    file.write(&batch(2, 1)).unwrap();
    let targets = |at| {
        read_moment(&path, &web(), minute(at))
            .unwrap()
            .unwrap()
            .targets
    };
    assert_eq!(targets(1), None, "not kept then");
    assert!(targets(2).is_some());
}

#[test]
fn accepted_findings_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let accepted = AcceptedFinding {
        key: FindingKey {
            service: web(),
            rule: "leak".to_owned(),
            class: None,
            target: Some("/srv/x".to_owned()),
        },
        reason: "known".to_owned(),
        until: Some(minute(5)),
    };
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    file.accept(&accepted).unwrap();
    file.accept(&accepted).unwrap();
    drop(file);
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    file.trim(minute(1)).unwrap();
    assert_eq!(file.accepted().unwrap().0, [accepted]);
}

#[test]
fn the_last_event_of_a_finding_is_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    let told = |at, word: &str, id, rule: &str| {
        let mut event = opened(at);
        event.event = word.to_owned();
        let note = event.finding.as_mut().unwrap();
        (note.id, note.rule) = (id, rule.to_owned());
        (web(), event)
    };
    let mut by_older = opened(9);
    let note = by_older.finding.as_mut().unwrap();
    (note.rule, note.pid) = ("unknown".to_owned(), None);
    let events = vec![
        // Open in an earlier start that nobody has closed.
        told(1, "opened", 1, "leak"),
        told(2, "opened", 2, "leak"),
        told(3, "updated", 2, "leak"),
        told(4, "resolved", 2, "leak"),
        told(5, "reopened", 2, "leak"),
        told(6, "opened", 3, "limit"),
        told(7, "resolved", 3, "limit"),
        told(8, "suppressed", 4, "growth"),
        (web(), by_older),
    ];
    let batch = HistoryBatch {
        events,
        ..HistoryBatch::default()
    };
    file.write(&batch).unwrap();
    let found = file.findings().unwrap();
    let states: Vec<_> = found.iter().map(|one| (one.id, one.state)).collect();
    assert_eq!(
        states,
        [
            (2, FindingState::Open),
            (3, FindingState::Resolved),
            (4, FindingState::Suppressed)
        ]
    );
    let leak = &found[0];
    assert_eq!((leak.opened_at, leak.told_at), (minute(2), minute(5)));
    assert_eq!((leak.flaps, leak.finding.pid), (1, 7));
    assert_eq!(leak.finding.count, Some(40));
    assert_eq!(leak.key, FindingKey::of(&web(), &leak.finding));
}

#[test]
fn what_was_kept_for_a_finding_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let (mut file, _) = StoreFile::open(options(&path, 1 << 26), minute(0)).unwrap();
    let mut resolved = opened(2);
    resolved.event = "resolved".to_owned();
    let batch = HistoryBatch {
        events: vec![(web(), opened(1)), (web(), resolved)],
        ..HistoryBatch::default()
    };
    file.write(&batch).unwrap();
    let evidence = Attachments {
        evidence: Some("/state/evidence/unit-web.tar.zst".to_owned()),
        trace: None,
    };
    let trace = Attachments {
        evidence: None,
        trace: Some(TraceNote {
            lines: vec![TracedLine {
                place: "open_one (app.py:3)".to_owned(),
                open: 7,
            }],
            folded: true,
            error: None,
            stem: "/state/traces/pid-7".into(),
        }),
    };
    file.attach(41, minute(3), &evidence).unwrap();
    file.attach(41, minute(4), &trace).unwrap();
    let both = Attachments {
        trace: trace.trace,
        ..evidence
    };
    assert_eq!(file.findings().unwrap()[0].attached, both);
    let older = &read_findings(&path).unwrap()[0];
    assert_eq!((older.id, older.state), (41, FindingState::Resolved));
    assert_eq!(
        (&older.evidence, &older.trace),
        (&both.evidence, &both.trace)
    );
    let day = 24 * 60;
    file.trim(minute(9 * day)).unwrap();
    assert!(read_findings(&path).unwrap().is_empty());
}

#[test]
fn no_file_is_not_an_empty_history() {
    let dir = tempfile::tempdir().unwrap();
    let missing = read_services(&dir.path().join("history.db"));
    assert!(missing.unwrap_err().to_string().contains("No such file"));
}
