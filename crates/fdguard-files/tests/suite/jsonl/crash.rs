//! Killed writers, and full disks.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fdguard_files::JsonlWriter;
use fdguard_files::jsonl::{Error, Options, Syncing};
use serde_json::json;
use tempfile::TempDir;
use testkit::{is_root, skip};

use super::{open, place, records};

/// Another process: this test program with a command to run.
fn helper(shell: &str, what: &str, path: &Path) -> Child {
    Command::new("bash")
        .args(["-c", &format!("{shell} exec \"$@\""), "bash"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "suite::jsonl::crash::role",
            "--nocapture",
        ])
        .env("FDGUARD_TEST_LOG", path)
        .env("FDGUARD_TEST_DO", what)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The numbers that a helper prints.
fn said(child: &mut Child) -> impl Iterator<Item = u64> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| {
        let (_, number) = line.split_once("wrote ")?;
        number.parse().ok()
    })
}

#[test]
#[ignore = "a role that other tests start"]
fn role() {
    let (Ok(path), Ok(what)) = (
        std::env::var("FDGUARD_TEST_LOG"),
        std::env::var("FDGUARD_TEST_DO"),
    ) else {
        return skip("no role was given");
    };
    let sync = if what == "each" {
        Syncing::EachLine
    } else {
        Syncing::OnClose
    };
    let options = Options {
        sync,
        patience: Duration::from_secs(30),
    };
    let path = Path::new(&path);
    let begin = records_or_none(path);
    let mut writer = JsonlWriter::open(path, options).unwrap();
    let mut out = std::io::stdout();
    for number in begin.. {
        let text = "x".repeat(usize::try_from(number % 7).unwrap() * 997);
        match writer.append(&json!({"number": number, "text": text})) {
            Ok(()) => writeln!(out, "wrote {number}").unwrap(),
            Err(error) => {
                let is_full = matches!(&error, Error::File(_)) && what == "full";
                assert!(is_full, "{error}");
                // A short line fits where the long one did not.
                writer.append(&json!({"last": number})).unwrap();
                writer.close().unwrap();
                return;
            }
        }
    }
}

fn records_or_none(path: &Path) -> u64 {
    fs::read_to_string(path).map_or(0, |text| text.matches("number").count() as u64)
}

#[test]
fn r50_killed_at_any_point_no_line_is_lost_that_was_told() {
    for what in ["each", "close"] {
        let (_dir, path) = place();
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..10 {
            let mut child = helper("", what, &path);
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let mut lines = said(&mut child);
            let mut last = lines.by_ref().take(1 + (seed % 40) as usize).last();
            child.kill().unwrap();
            child.wait().unwrap();
            last = lines.last().or(last);
            drop(open(&path));
            let numbers: Vec<_> = records(&path)
                .iter()
                .map(|record| record["number"].as_u64().unwrap())
                .collect();
            let expected: Vec<u64> = (0..numbers.len() as u64).collect();
            assert_eq!(numbers, expected, "each once and in order");
            assert!(numbers.last() >= last.as_ref(), "round {round}: {last:?}");
        }
    }
}

#[test]
fn a_line_that_has_no_room_leaves_no_half_of_it() {
    // At the file size limit: the half of a line that still fits is written, the rest refused.
    let (_dir, path) = place();
    let mut child = helper("trap '' XFSZ; ulimit -f 16;", "full", &path);
    let last = said(&mut child).last().unwrap();
    assert!(child.wait().unwrap().success());
    let records = records(&path);
    assert_eq!(records.len() as u64, last + 2);
    assert_eq!(records.last(), Some(&json!({"last": last + 1})));
}

/// A small file system that fills up quickly.
struct Tiny(TempDir);

impl Drop for Tiny {
    fn drop(&mut self) {
        let _status = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_leaves_no_half_of_a_line() {
    if !is_root() {
        return skip("only root may mount a file system");
    }
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(dir.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skip("no file system can be mounted here");
    }
    let tiny = Tiny(dir);
    let path = tiny.0.path().join("log.jsonl");
    let mut writer = open(&path);
    let long = "x".repeat(5000);
    let refused = loop {
        if let Err(error) = writer.append(&long) {
            break error;
        }
    };
    let Error::File(fdguard_files::Error::Io { source, .. }) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    let written = writer.written();
    assert_eq!(records(&path).len() as u64, written);
    // A short line still fits into the last page, and is not appended to the half of the long one.
    writer.append(&json!({"short": true})).unwrap();
    writer.close().unwrap();
    let records = records(&path);
    assert_eq!(records.len() as u64, written + 1);
    assert_eq!(records.last(), Some(&json!({"short": true})));
    drop(tiny);
}
