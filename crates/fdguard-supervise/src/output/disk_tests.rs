//! Logs on a disk that is full.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread;

use super::tests::{logging, quiet, settle, started, turn};
use super::{DroppedLines, OutputEvent, ServiceOutput};

/// A small file system for the test, removed with the value.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "fdguard-test"])
            .arg(dir.path())
            .output();
        let is_there = mount.is_ok_and(|mount| mount.status.success());
        is_there.then_some(Self(dir))
    }

    /// Makes room again, as an operator would.
    fn grow(&self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,size=16m"]).arg(self.0.path());
        assert!(mount.status().unwrap().success());
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ended = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

const LINES: usize = 30_000;

/// Writes more than memory keeps; the disk does not block the service. Returns the events, and the
/// service's end.
fn fill(output: &mut ServiceOutput) -> (Vec<OutputEvent>, File) {
    let [mut out, err] = started(output);
    drop(err);
    let writer = thread::spawn(move || {
        for line in 0..LINES {
            writeln!(out, "line {line:08} {}", "x".repeat(50)).unwrap();
        }
        out
    });
    let mut happened = Vec::new();
    while !writer.is_finished() || output.dropped().lines == 0 {
        happened.extend(turn(output, &mut |_| ()));
    }
    (happened, writer.join().unwrap())
}

/// The kept lines are in order, the gap is where lines are missing, and there is nothing else.
fn assert_told(text: &str, dropped: DroppedLines) {
    let DroppedLines { lines, bytes } = dropped;
    let gap = format!("fdguard_event event=log_gap lines={lines} bytes={bytes}");
    let at = text.lines().position(|line| line == gap).unwrap();
    let kept = text.lines().take(at).enumerate();
    for (number, line) in kept {
        assert!(line.starts_with(&format!("line {number:08} ")), "{line}");
    }
    let lost = usize::try_from(lines).unwrap();
    assert_eq!(at + lost, LINES, "kept and dropped are all there was");
    assert_eq!(text.lines().skip(at + 1).collect::<Vec<_>>(), ["after"]);
}

#[test]
fn a_full_disk_drops_and_counts_and_says_so_in_the_log() {
    let Some(small) = Small::new() else {
        testkit::skip("no small file system: this needs root and mount");
        return;
    };
    let path = small.0.path().join("a.log");
    let mut output = quiet(&logging(&path));
    let (happened, mut out) = fill(&mut output);
    let [OutputEvent::LogFailing { why, .. }] = &happened[..] else {
        panic!("{happened:?}")
    };
    assert!(why.contains("No space left"), "{why}");
    let partial = fs::read(&path).unwrap();
    assert!(partial.ends_with(b"\n"), "no torn line while it is full");
    // Everything written is read, and counted if there is no room for it.
    turn(&mut output, &mut |_| ());
    turn(&mut output, &mut |_| ());
    small.grow();
    let mut back = Vec::new();
    while back.is_empty() {
        back = turn(&mut output, &mut |_| ());
    }
    let [OutputEvent::LogBack { dropped, .. }] = back[..] else {
        panic!("{back:?}")
    };
    writeln!(out, "after").unwrap();
    drop(out);
    settle(&mut output);
    assert_eq!(output.dropped(), dropped);
    assert_told(&fs::read_to_string(&path).unwrap(), dropped);
    drop(output);
}

#[test]
fn a_disk_that_is_always_full_is_told_once_and_holds_nobody_up() {
    let mut output = quiet(&logging(Path::new("/dev/full")));
    let [mut out, err] = started(&mut output);
    drop(err);
    let writer = thread::spawn(move || {
        out.write_all(&b"0123456789abcde\n".repeat(200_000))
            .unwrap()
    });
    let mut happened = Vec::new();
    while !writer.is_finished() || output.dropped().lines == 0 {
        happened.extend(turn(&mut output, &mut |_| ()));
    }
    writer.join().unwrap();
    let [OutputEvent::LogFailing { .. }] = happened[..] else {
        panic!("{happened:?}")
    };
    output.ended();
    while output.has_sources() {
        turn(&mut output, &mut |_| ());
    }
    let dropped = output.dropped();
    assert_eq!(dropped.bytes, dropped.lines * 16);
    assert!(dropped.lines >= 200_000 - (1 << 20) / 16, "{dropped:?}");
    assert!(!output.is_idle());
}
