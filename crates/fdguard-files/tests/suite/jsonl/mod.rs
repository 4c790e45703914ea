//! A JSON Lines log: one writer, complete lines, nothing dropped silently.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fdguard_files::JsonlWriter;
use fdguard_files::jsonl::{Error, Options, Syncing, Tear};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::ScriptedProcess;

mod crash;

const AT_ONCE: Options = Options {
    sync: Syncing::OnClose,
    patience: Duration::ZERO,
};

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.jsonl");
    (dir, path)
}

fn open(path: &Path) -> JsonlWriter {
    JsonlWriter::open(path, AT_ONCE).unwrap()
}

/// The records of a log, all of whose lines must be complete.
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "{text:?}");
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn torn(path: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.torn-{number}", path.display()))
}

/// The numbers of the descriptors of a file in this process.
fn numbers(path: &Path) -> Vec<u32> {
    let wanted = path.metadata().unwrap().ino();
    let path = |number: &u32| format!("/proc/self/fd/{number}");
    let is_ours = |number: &u32| fs::metadata(path(number)).is_ok_and(|meta| meta.ino() == wanted);
    (0..1100).filter(is_ours).collect()
}

#[test]
fn values_become_lines_and_are_synced_at_the_end() {
    let (_dir, path) = place();
    let mut writer = open(&path);
    let values = [
        json!({"text": "two\nlines\r\n\0"}),
        json!([1, 2]),
        json!("ü"),
        json!(null),
    ];
    for value in &values {
        writer.append(value).unwrap();
    }
    assert_eq!((writer.written(), writer.synced()), (4, 0));
    let done = writer.close().unwrap();
    assert_eq!((done.written, done.synced), (4, 4));
    assert_eq!(records(&path), values);
    // A value that is not JSON leaves nothing behind.
    let mut writer = open(&path);
    let bad = std::collections::BTreeMap::from([((1, 2), 3)]);
    assert!(matches!(writer.append(&bad), Err(Error::Encode { .. })));
    writer.append(&1).unwrap();
    drop(writer);
    assert_eq!(records(&path).len(), 5);
}

#[test]
fn lines_are_synced_when_it_was_asked_for() {
    let (_dir, path) = place();
    let each = Options {
        sync: Syncing::EachLine,
        ..AT_ONCE
    };
    let mut writer = JsonlWriter::open(&path, each).unwrap();
    writer.append(&1).unwrap();
    assert_eq!((writer.synced(), writer.due()), (1, None));
    drop(writer);
    let seldom = Options {
        sync: Syncing::Every(Duration::from_secs(3600)),
        ..AT_ONCE
    };
    let mut writer = JsonlWriter::open(&path, seldom).unwrap();
    assert_eq!(writer.due(), None);
    writer.append(&2).unwrap();
    assert_eq!(writer.synced(), 0);
    assert!(writer.due().unwrap() > Instant::now() + Duration::from_secs(3000));
    writer.sync().unwrap();
    assert_eq!((writer.synced(), writer.due()), (1, None));
    drop(writer);
    let always = Options {
        sync: Syncing::Every(Duration::ZERO),
        ..AT_ONCE
    };
    let mut writer = JsonlWriter::open(&path, always).unwrap();
    writer.append(&3).unwrap();
    assert_eq!(writer.synced(), 1);
}

#[test]
fn r46_a_second_writer_is_refused_and_told_who_has_it() {
    let (_dir, path) = place();
    let first = open(&path);
    let refused = JsonlWriter::open(&path, AT_ONCE).unwrap_err().to_string();
    assert!(refused.contains("this process"), "{refused}");
    // Closing another descriptor of the file does not let a second writer in either.
    drop(File::open(&path).unwrap());
    assert!(JsonlWriter::open(&path, AT_ONCE).is_err());
    drop(first);
    drop(open(&path));
    let script = "import fcntl,struct,sys\nf=open(sys.argv[1],'a')\nfcntl.fcntl(f,37,struct.pack('hhqqi4x',1,0,0,0,0))\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = ScriptedProcess::python(script, &path);
    let refused = JsonlWriter::open(&path, AT_ONCE).unwrap_err().to_string();
    assert!(
        refused.contains(&format!("python3 (pid {}", child.id())),
        "{refused}"
    );
    let waiting = std::thread::spawn(move || JsonlWriter::open(&path, Options::default()).is_ok());
    drop(child);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_renamed_log_keeps_its_writer_and_its_successor_has_another() {
    let (dir, path) = place();
    let mut old = open(&path);
    old.append(&1).unwrap();
    let moved = dir.path().join("log.jsonl.closing");
    fs::rename(&path, &moved).unwrap();
    let mut new = open(&path);
    old.append(&2).unwrap();
    new.append(&3).unwrap();
    assert!(JsonlWriter::open(&moved, AT_ONCE).is_err());
    drop((old, new));
    assert_eq!(
        (records(&moved), records(&path)),
        (vec![json!(1), json!(2)], vec![json!(3)])
    );
}

#[test]
fn a_torn_end_is_moved_aside_and_told() {
    let (_dir, path) = place();
    fs::write(&path, "{\"a\":1}\n{\"b\":").unwrap();
    let mut writer = open(&path);
    let repair = &writer.repairs()[0];
    assert_eq!(repair.tears, [Tear::NoNewline, Tear::NotJson]);
    assert_eq!((repair.bytes, repair.records), (5, 0));
    assert_eq!(repair.kept_at, Some(torn(&path, 1)));
    assert_eq!(fs::read(torn(&path, 1)).unwrap(), b"{\"b\":");
    writer.append(&json!({"c": 3})).unwrap();
    drop(writer);
    assert_eq!(records(&path), [json!({"a": 1}), json!({"c": 3})]);
    // Complete except for its newline: nothing is moved.
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"d\":4}").unwrap();
    let writer = open(&path);
    assert_eq!(
        (
            writer.repairs()[0].kept_at.clone(),
            writer.repairs()[0].records
        ),
        (None, 1)
    );
    drop(writer);
    assert_eq!(records(&path).len(), 3);
    // Another one, with allocated space that was never written.
    file.write_all(&[0; 5000]).unwrap();
    let writer = open(&path);
    assert_eq!(writer.repairs()[0].kept_at, Some(torn(&path, 2)));
    assert_eq!(writer.repairs()[0].tears, [Tear::NoNewline, Tear::Nuls]);
    drop(writer);
    assert_eq!(fs::read(torn(&path, 2)).unwrap(), [0; 5000]);
    assert_eq!(records(&path).len(), 3);
    assert!(open(&path).repairs().is_empty(), "mended once");
}

#[test]
fn fused_records_are_lines_again_and_their_line_is_kept() {
    let (_dir, path) = place();
    let line = b"{\"a\":1}{\"b\":2}\n";
    fs::write(&path, [b"{}\n", &line[..]].concat()).unwrap();
    let writer = open(&path);
    assert_eq!(writer.repairs()[0].tears, [Tear::Fused]);
    assert_eq!(
        records(&path),
        [json!({}), json!({"a": 1}), json!({"b": 2})]
    );
    assert_eq!(fs::read(torn(&path, 1)).unwrap(), line);
}

#[test]
fn a_mend_that_broke_off_is_gone_on_with_and_keeps_the_line_once() {
    let (_dir, path) = place();
    fs::write(&path, "{}\n{\"a\"").unwrap();
    // As if it had been killed after saving the line but before removing it.
    fs::write(torn(&path, 1), "{\"a\"").unwrap();
    let writer = open(&path);
    assert_eq!(writer.repairs()[0].kept_at, Some(torn(&path, 1)));
    assert!(!torn(&path, 2).exists());
    assert_eq!(records(&path), [json!({})]);
}

#[test]
fn a_last_line_of_many_megabytes_is_moved_without_being_read_into_memory() {
    let (_dir, path) = place();
    let file = File::create(&path).unwrap();
    (&file).write_all(b"{}\n{\"a\":\"").unwrap();
    file.set_len(40 << 20).unwrap();
    let writer = open(&path);
    assert_eq!(writer.repairs()[0].tears, [Tear::TooLong]);
    assert_eq!(torn(&path, 1).metadata().unwrap().len(), (40 << 20) - 3);
    drop(writer);
    assert_eq!(records(&path), [json!({})]);
}

#[test]
fn r44_a_deleted_log_takes_no_line() {
    let (_dir, path) = place();
    let mut writer = open(&path);
    writer.append(&1).unwrap();
    fs::remove_file(&path).unwrap();
    let refused = writer.append(&2).unwrap_err();
    assert!(matches!(refused, Error::Deleted { .. }), "{refused}");
    assert_eq!(writer.written(), 1);
}

#[test]
fn a_stranger_who_asks_for_no_lock_does_not_fuse_lines() {
    let (_dir, path) = place();
    let mut writer = open(&path);
    writer.append(&1).unwrap();
    let mut stranger = File::options().append(true).open(&path).unwrap();
    stranger.write_all(b"{\"half\":").unwrap();
    writer.append(&2).unwrap();
    stranger.write_all(b"3\n").unwrap();
    writer.append(&4).unwrap();
    assert_eq!(writer.disturbed(), 2);
    assert_eq!(fs::read(torn(&path, 1)).unwrap(), b"{\"half\":");
    // Another process truncates it, as log rotation by copying does.
    stranger.set_len(0).unwrap();
    writer.append(&5).unwrap();
    assert_eq!((writer.disturbed(), records(&path)), (3, vec![json!(5)]));
}

#[test]
fn the_descriptor_is_high_and_gone_afterwards() {
    let (_dir, path) = place();
    let count = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    let writer = open(&path);
    let numbers = numbers(&path);
    assert!(numbers.len() == 1 && numbers[0] >= 500, "{numbers:?}");
    drop(JsonlWriter::open(&path, AT_ONCE).unwrap_err());
    assert_eq!(count(), before + 1);
    writer.close().unwrap();
    assert_eq!(count(), before);
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = JsonlWriter::open(Path::new("/dev/null"), AT_ONCE).unwrap_err();
    assert!(
        refused.to_string().contains("not a regular file"),
        "{refused}"
    );
    assert!(JsonlWriter::open(dir.path(), AT_ONCE).is_err());
    assert!(JsonlWriter::open(&dir.path().join("no/log"), AT_ONCE).is_err());
}
