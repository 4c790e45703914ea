//! Output over rotations, restarts, slow readers and full disks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::PipeFlags;

use super::{DroppedLines, Forwarding, OutputEvent, OutputSpec, ServiceOutput};
use crate::poll::Interest;

pub(super) fn null() -> File {
    File::options().write(true).open("/dev/null").unwrap()
}

pub(super) fn quiet(form: &OutputSpec) -> ServiceOutput {
    let null = null();
    ServiceOutput::open(form, "web", [null.as_fd(), null.as_fd()]).unwrap()
}

pub(super) fn logging(path: &Path) -> OutputSpec {
    OutputSpec {
        pass: Some(Forwarding::Off),
        log: Some(path.to_owned()),
        ..OutputSpec::default()
    }
}

pub(super) fn turn(output: &mut ServiceOutput, heard: &mut dyn FnMut(&[u8])) -> Vec<OutputEvent> {
    let mut wants = Interest::default();
    output.wants(&mut wants);
    wants.until(Instant::now() + Duration::from_millis(20));
    let ready = wants.wait().unwrap();
    output.poll(Instant::now(), &ready, heard)
}

/// Polls until everything that was written is read and kept.
pub(super) fn settle(output: &mut ServiceOutput) -> Vec<OutputEvent> {
    let mut happened = Vec::new();
    output.ended();
    while !output.is_idle() {
        happened.extend(turn(output, &mut |_| ()));
    }
    happened
}

pub(super) fn started(output: &mut ServiceOutput) -> [File; 2] {
    output.start().unwrap().map(File::from)
}

fn pipe() -> (File, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    (File::from(reader), writer)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Every file of a log, the newest last.
fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let number = path
            .extension()
            .and_then(|end| end.to_str()?.parse::<i64>().ok());
        found.insert(-number.unwrap_or(0), fs::read(path).unwrap());
    }
    found.into_values().collect()
}

const STARTS: u32 = 20;
const LINES: u32 = 5000;

/// Writes one start's lines: in pieces, and to both streams in turn.
fn write_lines(start: u32, [mut out, mut err]: [File; 2]) {
    for line in 0..LINES {
        let padding = "x".repeat(usize::try_from(line % 17).unwrap());
        let text = format!("start {start} line {line} {padding}\n");
        let (first, rest) = text.as_bytes().split_at(text.len() / 2);
        if line % 3 == 0 {
            err.write_all(text.as_bytes()).unwrap();
        } else {
            out.write_all(first).unwrap();
            out.write_all(rest).unwrap();
        }
    }
}

/// Each line of each start exists once. Each stream keeps its order; between them there is none.
fn assert_complete(text: &str) {
    let mut next = BTreeMap::new();
    for line in text.lines() {
        let words = line.split(' ');
        let numbers: Vec<u32> = words.filter_map(|word| word.parse().ok()).collect();
        let [start, line] = numbers[..] else {
            panic!("{line}")
        };
        let is_error = line % 3 == 0;
        let expected = next
            .entry((start, is_error))
            .or_insert(u32::from(!is_error));
        assert_eq!(line, *expected, "start {start}");
        *expected += match line % 3 {
            0 => 3,
            one => one,
        };
    }
    let all = usize::try_from(STARTS * LINES).unwrap();
    assert_eq!(text.lines().count(), all);
}

#[test]
fn no_line_is_lost_or_torn_or_doubled_over_rotations_and_restarts() {
    let before = descriptors();
    let dir = tempfile::tempdir().unwrap();
    let form = OutputSpec {
        log_size: 64 << 10,
        log_keep: 200,
        ..logging(&dir.path().join("a.log"))
    };
    let mut output = quiet(&form);
    let mut heard = 0;
    for start in 0..STARTS {
        let ends = started(&mut output);
        let writer = thread::spawn(move || write_lines(start, ends));
        while !writer.is_finished() {
            turn(&mut output, &mut |_| heard += 1);
        }
        writer.join().unwrap();
        // Every second time, the next start comes before the last output of this one was read.
        if start % 2 == 0 {
            output.ended();
        }
    }
    output.ended();
    while !output.is_idle() {
        turn(&mut output, &mut |_| heard += 1);
    }
    assert_eq!(output.dropped(), DroppedLines::default());
    drop(output);
    let files = files(dir.path());
    assert!(files.len() > 40, "{} files", files.len());
    for file in &files {
        let length = file.len();
        assert!(length <= 64 << 10 && file.ends_with(b"\n"), "{length}");
    }
    assert_complete(&String::from_utf8(files.concat()).unwrap());
    assert_eq!(heard, STARTS * LINES);
    assert_eq!(descriptors(), before);
}

#[test]
fn only_so_many_files_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let form = OutputSpec {
        log_size: 4 << 10,
        log_keep: 2,
        ..logging(&dir.path().join("a.log"))
    };
    let mut output = quiet(&form);
    let [mut out, err] = started(&mut output);
    drop(err);
    for line in 0..2000 {
        writeln!(out, "line {line}").unwrap();
        if line % 100 == 0 {
            turn(&mut output, &mut |_| ());
        }
    }
    drop(out);
    settle(&mut output);
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a.log", "a.log.1", "a.log.2"]);
    let newest = fs::read_to_string(dir.path().join("a.log")).unwrap();
    assert!(newest.ends_with("line 1999\n"), "{newest}");
}

#[test]
fn a_slow_reader_makes_the_service_wait_and_loses_nothing() {
    let (mut reader, ours) = pipe();
    let form = OutputSpec {
        pass: Some(Forwarding::Lines),
        ..OutputSpec::default()
    };
    let mut output = ServiceOutput::open(&form, "web", [ours.as_fd(), ours.as_fd()]).unwrap();
    drop(ours);
    let [mut out, err] = started(&mut output);
    drop(err);
    let writer = thread::spawn(move || {
        for line in 0..100_000 {
            writeln!(out, "line {line}").unwrap();
        }
    });
    // Without a reader everything is full after a while, and the service blocks.
    for _ in 0..50 {
        turn(&mut output, &mut |_| ());
    }
    assert!(!writer.is_finished());
    let reading = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    while !writer.is_finished() {
        turn(&mut output, &mut |_| ());
    }
    settle(&mut output);
    drop(output);
    let text = reading.join().unwrap();
    let lines = text.lines().enumerate();
    assert!(
        lines
            .clone()
            .all(|(number, line)| line == format!("line {number}"))
    );
    assert_eq!(lines.count(), 100_000);
}

#[test]
fn lines_get_the_services_name_and_bytes_stay_as_they_are() {
    let (mut reader, ours) = pipe();
    let (mut errors, our_errors) = pipe();
    let form = OutputSpec {
        pass: Some(Forwarding::Prefix),
        ..OutputSpec::default()
    };
    let mut output = ServiceOutput::open(&form, "web", [ours.as_fd(), our_errors.as_fd()]).unwrap();
    drop((ours, our_errors));
    let [mut out, mut err] = started(&mut output);
    out.write_all(b"one\n\xff\x00two\nlast words").unwrap();
    err.write_all(b"oops\n").unwrap();
    drop((out, err));
    let mut heard = Vec::new();
    output.ended();
    while !output.is_idle() {
        turn(&mut output, &mut |line| heard.push(line.to_vec()));
    }
    let last: Vec<_> = output.last().lines().map(<[u8]>::to_vec).collect();
    drop(output);
    let mut text = Vec::new();
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"web | one\nweb | \xff\x00two\nweb | last words\n");
    let mut text = Vec::new();
    errors.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"web | oops\n");
    heard.sort();
    assert_eq!(heard, [&b"last words"[..], b"one", b"oops", b"\xff\x00two"]);
    assert_eq!(last.len(), 4);
}

#[test]
fn a_service_cannot_forge_an_event_in_what_is_passed_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let (mut reader, ours) = pipe();
    let form = OutputSpec {
        pass: Some(Forwarding::Lines),
        ..logging(&path)
    };
    let null = null();
    let mut output = ServiceOutput::open(&form, "web", [null.as_fd(), ours.as_fd()]).unwrap();
    drop(ours);
    let [out, mut err] = started(&mut output);
    let forged = "fdguard_event event=stopped survivors=0\n";
    err.write_all(b"one\n").unwrap();
    err.write_all(forged.as_bytes()).unwrap();
    drop((out, err));
    settle(&mut output);
    drop(output);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, format!("one\nweb | {forged}"));
    let log = fs::read_to_string(path).unwrap();
    assert_eq!(log, format!("one\n{forged}"), "its own log is its own");
}

#[test]
fn a_reader_that_goes_away_is_told_once_and_the_log_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let (reader, ours) = pipe();
    let form = OutputSpec {
        pass: Some(Forwarding::Lines),
        ..logging(&path)
    };
    let null = null();
    let mut output = ServiceOutput::open(&form, "web", [ours.as_fd(), null.as_fd()]).unwrap();
    drop((reader, ours));
    let [mut out, err] = started(&mut output);
    drop(err);
    out.write_all(b"one\ntwo\n").unwrap();
    let mut happened = Vec::new();
    while happened.is_empty() {
        happened = turn(&mut output, &mut |_| ());
    }
    let [
        OutputEvent::NobodyReads {
            stream: "stdout", ..
        },
    ] = happened[..]
    else {
        panic!("{happened:?}")
    };
    out.write_all(b"three\n").unwrap();
    drop(out);
    assert_eq!(settle(&mut output), []);
    assert_eq!(fs::read_to_string(path).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn a_log_that_was_moved_away_is_begun_anew_after_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    fs::write(&path, "torn").unwrap();
    let mut output = quiet(&logging(&path));
    let [mut out, _err] = started(&mut output);
    out.write_all(b"one\ntw").unwrap();
    turn(&mut output, &mut |_| ());
    fs::rename(&path, dir.path().join("old")).unwrap();
    output.reopen();
    out.write_all(b"o\nthree\n").unwrap();
    drop(out);
    settle(&mut output);
    assert_eq!(
        fs::read_to_string(dir.path().join("old")).unwrap(),
        "torn\none\n"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "two\nthree\n");
}

#[test]
fn a_pipe_that_a_stranger_holds_open_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    let mut output = quiet(&logging(&path));
    let [mut out, err] = started(&mut output);
    out.write_all(b"words\nlast").unwrap();
    settle(&mut output);
    drop((out, err));
    assert_eq!(fs::read_to_string(&path).unwrap(), "words\nlast\n");
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let null = null();
    let open =
        |path: &Path| ServiceOutput::open(&logging(path), "web", [null.as_fd(), null.as_fd()]);
    assert!(open(&dir.path().join("none/a.log")).is_err());
    assert!(open(dir.path()).is_err());
}

#[test]
fn a_log_that_cannot_be_rotated_grows_and_is_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    fs::create_dir(dir.path().join("a.log.next")).unwrap();
    let form = OutputSpec {
        log_size: 4 << 10,
        ..logging(&path)
    };
    let mut output = quiet(&form);
    let [mut out, err] = started(&mut output);
    drop(err);
    for line in 0..1000 {
        writeln!(out, "line {line}").unwrap();
    }
    drop(out);
    let happened = settle(&mut output);
    let [OutputEvent::NotRotated { .. }] = happened[..] else {
        panic!("{happened:?}")
    };
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1000);
}
