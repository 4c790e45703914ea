mod any;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::recording::{Appearance, RecordingEntry, RecordingHeader};
use fdguard_core::select_use::SelectUse;
use fdguard_core::snapshot::Process;
use fdguard_core::timeline::{Look, LookChange, Sighting};
use fdguard_core::{Class, Gap, TcpState, Text, Tier};
use jiff::Timestamp;

use super::{Recorder, Replay, play};
use crate::Error;

fn header() -> RecordingHeader {
    RecordingHeader::new(Timestamp::UNIX_EPOCH, 0.5)
}

fn process(id: u32, at: f64) -> RecordingEntry {
    RecordingEntry::Process(Box::new(Appearance {
        id,
        at,
        process: Process {
            pid: 4000 + id,
            comm: Text::from(&b"odd\xff"[..]),
            ..Process::default()
        },
        tier: Tier::Full,
        select: Some(SelectUse::Absent),
        successor_of: None,
    }))
}

fn look(id: u32, at: f64) -> RecordingEntry {
    let sighting = |fd| Sighting {
        fd,
        class: Class::Tcp(TcpState::CloseWait),
        target: Text::from(&b"/srv/\xfe\xff"[..]),
        group: None,
    };
    RecordingEntry::Look {
        id,
        look: Box::new(Look {
            at,
            count: Some(7),
            table: Some(LookChange {
                opened: vec![sighting(3), sighting(4)],
                ..LookChange::default()
            }),
            ..Look::default()
        }),
    }
}

fn small() -> Vec<RecordingEntry> {
    vec![
        process(1, 0.0),
        look(1, 0.0),
        RecordingEntry::Gap(Gap::new("a", "b", "c")),
        look(1, 0.5),
        RecordingEntry::Gone { id: 1, at: 0.75 },
        RecordingEntry::End {
            ended: WatchEnd::ProcessEnded,
            ended_at: Timestamp::UNIX_EPOCH,
        },
    ]
}

/// A file in a directory that is removed with the test.
fn place(name: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    (dir, path)
}

/// Flushes after every second entry, so that a compressed recording has several frames.
fn record(path: &Path, entries: &[RecordingEntry]) {
    let mut recorder = Recorder::create(path, &header()).unwrap();
    let mut now = Instant::now();
    for pair in entries.chunks(2) {
        for entry in pair {
            recorder.write(entry).unwrap();
        }
        now += Duration::from_secs(2);
        recorder.flush_due(now).unwrap();
    }
    recorder.finish().unwrap();
}

fn recorded(name: &str, entries: &[RecordingEntry]) -> Vec<u8> {
    let (_dir, path) = place(name);
    record(&path, entries);
    std::fs::read(&path).unwrap()
}

fn opened(bytes: &[u8]) -> Result<Replay, Error> {
    Replay::new("it", Box::new(std::io::Cursor::new(bytes.to_vec())))
}

fn open(path: &Path) -> Replay {
    Replay::new("it", Box::new(std::fs::File::open(path).unwrap())).unwrap()
}

/// The entries, and where the recording was cut.
fn read(bytes: &[u8]) -> (Vec<RecordingEntry>, Option<String>) {
    let mut replay = opened(bytes).unwrap();
    let entries = (&mut replay).collect();
    (entries, replay.cut())
}

fn lines(lines: &[&str]) -> Vec<u8> {
    let first = serde_json::to_string(&header()).unwrap();
    let mut text = first + "\n";
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text.into_bytes()
}

/// The message and its hint.
fn refusal(bytes: &[u8]) -> (String, &'static str) {
    match opened(bytes).unwrap_err() {
        Error::Input { message, hint } => (message, hint),
        other => panic!("an error without a hint: {other}"),
    }
}

#[test]
fn what_was_written_comes_back_plain_and_compressed() {
    for name in ["a.jsonl", "a.jsonl.zst"] {
        let (_dir, path) = place(name);
        record(&path, &small());
        let mut replay = open(&path);
        assert_eq!(replay.header(), &header());
        let entries: Vec<RecordingEntry> = (&mut replay).collect();
        assert_eq!((entries, replay.cut()), (small(), None), "{name}");
    }
}

#[test]
fn compression_is_told_by_the_bytes_and_not_by_the_name() {
    let bytes = recorded("a.zst", &small());
    assert_eq!(bytes[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    let (_dir, path) = place("renamed.jsonl");
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(open(&path).count(), small().len());
}

#[test]
fn a_cut_at_any_byte_leaves_all_that_was_whole() {
    for name in ["a.jsonl", "a.zst"] {
        let (bytes, all) = (recorded(name, &small()), small());
        let mut longest = 0;
        for length in 0..bytes.len() {
            let Ok(mut replay) = opened(&bytes[..length]) else {
                assert_eq!(longest, 0, "{name}: refused at {length}, read before");
                continue;
            };
            let entries: Vec<RecordingEntry> = (&mut replay).collect();
            assert_eq!(entries, all[..entries.len()], "{name} at {length}");
            assert!(entries.len() >= longest, "{name} at {length}");
            longest = entries.len();
            let (watch, _) = play(opened(&bytes[..length]).unwrap());
            assert!(watch.ended().is_some());
        }
        // A frame holds two entries, and half of one holds none.
        assert!(longest + 2 >= all.len(), "{name}: {longest}");
    }
}

#[test]
fn a_cut_says_where() {
    let whole = recorded("a.jsonl", &small());
    let (entries, cut) = read(&whole[..whole.len() - 9]);
    assert_eq!(entries.len(), small().len() - 1);
    assert_eq!(cut.unwrap(), "it ends in the middle of line 7");
    let compressed = recorded("a.zst", &small());
    let (entries, cut) = read(&compressed[..compressed.len() - 9]);
    assert_eq!(entries.len(), 4);
    let cut = cut.unwrap();
    let said = "after line 5: compressed data is truncated or damaged";
    assert!(cut.starts_with(said), "{cut}");
}

#[test]
fn a_missing_line_end_alone_is_no_cut() {
    let whole = recorded("a.jsonl", &small());
    assert_eq!(read(&whole[..whole.len() - 1]), (small(), None));
}

#[test]
fn the_end_is_added_where_it_is_missing() {
    let mut entries = small();
    entries.pop();
    let whole = recorded("a.jsonl", &entries);
    let (watch, cut) = play(opened(&whole).unwrap());
    assert_eq!((watch.ended(), cut), (Some(WatchEnd::RecordingEnded), None));
    let (watch, cut) = play(opened(&whole[..whole.len() - 4]).unwrap());
    assert_eq!(watch.ended(), Some(WatchEnd::RecordingCut));
    assert_eq!(watch.gaps()[1].why, cut.unwrap());
    let (_dir, path) = place("a.zst");
    record(&path, &small());
    let (watch, _) = play(open(&path));
    assert_eq!(watch.ended(), Some(WatchEnd::ProcessEnded));
}

#[test]
fn kinds_of_a_later_version_are_skipped_and_counted() {
    let known = serde_json::to_string(&look(1, 1.0)).unwrap();
    let bytes = lines(&[
        r#"{"mood":{"id":1}}"#,
        &known,
        "",
        r#"{"mood":2}"#,
        r#"{"end":{"ended":"bored","ended_at":"1970-01-01T00:00:00Z"}}"#,
    ]);
    let (entries, cut) = read(&bytes);
    assert_eq!((entries.len(), cut), (2, None));
    let RecordingEntry::Gap(gap) = &entries[1] else {
        panic!("{entries:?}");
    };
    assert_eq!(gap.what, "3 entries of the recording (end, mood)");
    assert!(gap.remedy.contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_clock_that_went_backwards_is_held_and_told() {
    let entries = [look(1, 5.0), look(2, 1.0), look(1, 3.0), look(1, 6.0)];
    let (read, cut) = read(&recorded("a.jsonl", &entries));
    assert_eq!(cut, None);
    assert_eq!(
        read[..4],
        [look(1, 5.0), look(2, 1.0), look(1, 5.0), look(1, 6.0)]
    );
    let RecordingEntry::Gap(gap) = &read[4] else {
        panic!("{read:?}");
    };
    assert_eq!(gap.what, "the timestamps of 1 entry of the recording");
    assert_eq!(gap.why, "the recording's clock went backwards");
}

#[test]
fn damage_in_the_middle_ends_it_and_keeps_what_was_before() {
    let known = serde_json::to_string(&look(1, 1.0)).unwrap();
    let (entries, cut) = read(&lines(&[&known, "\0\0\0", &known]));
    assert_eq!(entries, [look(1, 1.0)]);
    assert!(cut.unwrap().starts_with("line 3 is damaged: "));
    let again = serde_json::to_string(&header()).unwrap();
    let (entries, cut) = read(&lines(&[&known, &again, &known]));
    assert_eq!(entries.len(), 1);
    assert_eq!(cut.unwrap(), "another recording begins at line 3");
}

#[test]
fn what_is_no_recording_is_refused_in_one_line_with_a_hint() {
    let snapshot = br#"{"schema":"fdguard.snapshot/1","taken_at":"1970-01-01T00:00:00Z"}"#;
    let later = br#"{"schema":"fdguard.recording/2","shape":"new"}"#;
    let cases: [(&[u8], &str); 7] = [
        (b"", "it is empty"),
        (
            later,
            "it is a recording of a later fdguard (fdguard.recording/2); this version reads fdguard.recording/1",
        ),
        (
            snapshot,
            "it is not a recording: its schema is \"fdguard.snapshot/1\"",
        ),
        (
            br#"{"schema":"fdguard.diagnosis/1"}"#,
            "it is not a recording: its schema is \"fdguard.diagnosis/1\"",
        ),
        (
            b"\x7fELF\x00\n\xff",
            "it is not a recording: its first line is not a recording header",
        ),
        (
            br#"{"schema":"fdguard.recording/1","ver"#,
            "it ends in the middle of its first line",
        ),
        (
            b"{",
            "it is not a recording: its first line is not a recording header",
        ),
    ];
    for (bytes, said) in cases {
        let (message, hint) = refusal(bytes);
        assert_eq!(message, said);
        assert!(!hint.is_empty() && !message.contains('\n'));
    }
    let damaged = refusal(br#"{"schema":"fdguard.recording/1"}"#).0;
    assert!(
        damaged.starts_with("it is a damaged recording: line 1: "),
        "{damaged}"
    );
    assert!(opened(&[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3]).is_err());
}

#[test]
fn a_line_without_an_end_does_not_fill_the_memory() {
    use std::io::Read as _;
    let first = lines(&[]);
    let endless = std::io::Cursor::new(first).chain(std::io::repeat(b'x').take(70 << 20));
    let mut replay = Replay::new("it", Box::new(endless)).unwrap();
    assert_eq!(replay.next(), None);
    assert_eq!(replay.cut().unwrap(), "line 2 is longer than 64 MiB");
}

#[test]
fn a_second_or_64_entries_are_flushed() {
    for name in ["a.jsonl", "a.zst"] {
        let (_dir, path) = place(name);
        let mut recorder = Recorder::create(&path, &header()).unwrap();
        let on_disk = || open(&path).count();
        let start = Instant::now();
        recorder.flush_due(start).unwrap();
        recorder.write(&look(1, 0.0)).unwrap();
        recorder
            .flush_due(start + Duration::from_millis(900))
            .unwrap();
        assert_eq!(on_disk(), 0);
        recorder.flush_due(start + Duration::from_secs(1)).unwrap();
        assert_eq!(on_disk(), 1);
        for _ in 0..64 {
            recorder.write(&look(1, 0.0)).unwrap();
        }
        assert_eq!(on_disk(), 65);
    }
}

#[test]
fn a_full_disk_is_told_once() {
    if !Path::new("/dev/full").exists() {
        return testkit::skip("no /dev/full");
    }
    let error = Recorder::create(Path::new("/dev/full"), &header()).unwrap_err();
    assert_eq!(error.to_string(), "/dev/full");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("No space left"), "{cause}");
    let (_dir, path) = place("a.jsonl");
    let mut recorder = Recorder::create(&path, &header()).unwrap();
    recorder.out = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    recorder.write(&look(1, 0.0)).unwrap();
    let now = Instant::now();
    recorder.flush_due(now).unwrap();
    let later = now + Duration::from_secs(1);
    assert!(recorder.flush_due(later).is_err());
    recorder.write(&look(1, 0.5)).unwrap();
    recorder.flush_due(later + Duration::from_secs(1)).unwrap();
    recorder.finish().unwrap();
}

#[test]
fn a_pipe_can_be_written_to_and_read_from() {
    let (_dir, path) = place("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    if !made.is_ok_and(|status| status.success()) {
        return testkit::skip("no mkfifo");
    }
    let writer = {
        let path = path.clone();
        std::thread::spawn(move || record(&path, &small()))
    };
    let (watch, cut) = play(open(&path));
    writer.join().unwrap();
    assert_eq!((watch.ended(), cut), (Some(WatchEnd::ProcessEnded), None));
}

#[test]
fn the_zstd_program_reads_ours_and_we_read_its() {
    let (_dir, path) = place("a.zst");
    record(&path, &small());
    let zstd = |arguments: &[&str]| {
        std::process::Command::new("zstd")
            .args(arguments)
            .arg(&path)
            .output()
    };
    let Ok(plain) = zstd(&["-dcq"]) else {
        return testkit::skip("no zstd program");
    };
    assert!(plain.status.success(), "{plain:?}");
    assert_eq!(read(&plain.stdout), (small(), None));
    std::fs::write(&path, &plain.stdout).unwrap();
    let again = zstd(&["-19", "-cq"]).unwrap();
    assert_eq!(read(&again.stdout), (small(), None));
}
