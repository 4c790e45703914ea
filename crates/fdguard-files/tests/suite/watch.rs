//! Detects the moment at which a database is damaged.

use std::fs;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use fdguard_files::FileWatch;
use fdguard_files::watch::{FileChange, FileEvent};
use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{MadeDatabase, alert};

/// Polls until an event matches.
fn until(watch: &mut FileWatch, wanted: impl Fn(&FileChange) -> bool) -> Vec<FileEvent> {
    let mut seen = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        seen.extend(watch.poll().unwrap());
        if seen.iter().any(|event| wanted(&event.change)) {
            return seen;
        }
        wait(watch);
    }
    panic!("it did not happen: {seen:?}");
}

/// Waits until the kernel reports an event, or the next check is scheduled.
fn wait(watch: &FileWatch) {
    let longest = watch.due().map_or(Duration::from_secs(1), |due| {
        due.saturating_duration_since(Instant::now())
    });
    let longest = Timespec::try_from(longest).unwrap();
    let fd = watch.as_fd();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&longest)).unwrap();
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn r42_the_moment_is_told_once_and_so_is_its_end() {
    let made = MadeDatabase::new("wal");
    let whole = made.bytes();
    let mut watch = FileWatch::start(&[made.dir.path().to_owned()]).unwrap();
    assert_eq!(watch.databases(), 1);
    assert!(watch.poll().unwrap().is_empty());
    made.write(5, &alert());
    let seen = until(&mut watch, |change| matches!(change, FileChange::Bad(_)));
    let [
        FileEvent {
            path,
            change: FileChange::Bad(found),
        },
    ] = &seen[..]
    else {
        panic!("{seen:?}")
    };
    assert_eq!(
        (path, found[0].rule),
        (&made.path.canonicalize().unwrap(), "tls-record")
    );
    made.write(0, &whole[..100]);
    until(&mut watch, |change| *change == FileChange::Sound);
    fs::remove_file(&made.path).unwrap();
    until(&mut watch, |change| *change == FileChange::Deleted);
}

#[test]
fn r42_a_database_that_comes_later_is_watched_when_its_dir_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut watch = FileWatch::start(&[dir.path().to_owned()]).unwrap();
    let made = MadeDatabase::new("delete");
    let path = dir.path().join("new.db");
    fs::copy(&made.path, &path).unwrap();
    until(&mut watch, |change| *change == FileChange::Appeared);
    super::write_at(&path, 0, b"GET / HTTP/1.1\r\nHost: example\r\n");
    until(&mut watch, |change| matches!(change, FileChange::Bad(_)));
    fs::rename(&made.path, &path).unwrap();
    until(&mut watch, |change| *change == FileChange::Sound);
}

#[test]
fn a_thousand_writes_cost_no_descriptor_and_raise_no_alarm() {
    let made = MadeDatabase::new("wal");
    let connection = Connection::open(&made.path).unwrap();
    connection
        .pragma_update(None, "wal_autocheckpoint", 10)
        .unwrap();
    connection
        .pragma_update(None, "synchronous", "off")
        .unwrap();
    connection
        .execute("UPDATE t SET b = 'x' WHERE a = 1", [])
        .unwrap();
    let mut watch = FileWatch::start(std::slice::from_ref(&made.path)).unwrap();
    watch.poll().unwrap();
    let before = descriptors();
    for n in 0..1000 {
        connection
            .execute("UPDATE t SET b = ?1 WHERE a = ?2", (n.to_string(), n % 200))
            .unwrap();
        let seen = watch.poll().unwrap();
        assert!(seen.is_empty(), "write {n}: {seen:?}");
    }
    assert_eq!(descriptors(), before);
    assert!(
        watch.looks() < 1000,
        "{} looks at 1000 writes: the bound holds",
        watch.looks()
    );
}

#[test]
fn what_is_no_database_is_not_watched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session.jsonl");
    fs::write(&path, "{}\n").unwrap();
    let refused = FileWatch::start(&[path]).unwrap_err().to_string();
    assert!(
        refused.contains("only databases can be watched"),
        "{refused}"
    );
}
