//! Compares the `lsof` reader with the `/proc` reader, on real processes.

#![expect(
    clippy::expect_used,
    reason = "helpers of tests: they stop the test at that line"
)]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fdguard_core::{Detail, FdEntry, Snapshot, Tier};
use fdguard_probe::{Error, Lsof, Options, Probe, ProcessReader as _};
use testkit::Victim;

/// Where `lsof` cannot report what `/proc` does: the victim's name for the descriptor, the class by
/// `/proc`, the class by lsof 4.95. Each is explained in `docs/guide/via-lsof.md`.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    // lsof looks sockets up in /proc/net/tcp, which lists neither bound nor unbound ones; for both
    // it has only the protocol's name.
    ("TCP, bound only", "tcp:BOUND", "tcp:UNBOUND"),
    // The same for a socket that both sides closed: no table lists it, and lsof cannot query the
    // socket.
    (
        "TCP, closed by both, by us first",
        "tcp:CLOSE",
        "tcp:UNBOUND",
    ),
    (
        "TCP, closed by both, by the peer first",
        "tcp:CLOSE",
        "tcp:UNBOUND",
    ),
    // Regular by its mode; only the file system shows the difference, and lsof does not check that.
    ("message queue", "other:mqueue", "regular"),
];

/// Descriptors whose name lsof does not report exactly.
const AMBIGUOUS: [&str; 3] = [
    // It prints an escape character as `^[`, and `^[` as well.
    "file with line end and escapes",
    // It cannot know whether the kernel's mark belongs to the name: it must not look anything up
    // here.
    "file that lost the name it was opened by",
    // A path to lsof, a queue to fdguard.
    "message queue",
];

/// Serialises the tests, since one of them reads the table that they share if they are threads.
/// `None` without lsof, which is reported.
fn lsof_alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if Command::new("lsof").arg("-v").output().is_err() {
        testkit::skip("lsof is not installed; nothing was compared with it");
        return None;
    }
    Some(guard)
}

fn by_lsof(pid: u32) -> Snapshot {
    let only = Lsof::default().snapshot(pid, Options::default());
    only.expect("lsof sees the process")
}

fn by_proc(pid: u32) -> Snapshot {
    let probe = Probe::new().expect("/proc");
    let options = Options {
        peers: false,
        ..Options::default()
    };
    probe.snapshot(pid, options).expect("a snapshot")
}

fn table(snapshot: &Snapshot) -> BTreeMap<u32, &FdEntry> {
    let fds = snapshot.fds.iter().flatten();
    fds.map(|entry| (entry.fd, entry)).collect()
}

fn what(victim: &Victim, fd: u32) -> &str {
    let mut holdings = victim.holdings().iter();
    let found = holdings.find(|held| held.fd == fd);
    found.map_or("", |held| &held.what)
}

#[test]
fn both_readers_see_the_same_numbers_and_classes() {
    let Some(_alone) = lsof_alone() else { return };
    let victim = Victim::start("everything");
    let (proc, lsof) = (by_proc(victim.pid()), by_lsof(victim.pid()));
    let (proc, seen) = (table(&proc), table(&lsof));
    let numbers: Vec<&u32> = seen.keys().collect();
    assert_eq!(numbers, proc.keys().collect::<Vec<_>>());
    assert_eq!(lsof.count, Some(proc.len() as u64));
    let mut used = Vec::new();
    for (fd, entry) in &proc {
        let (by_proc, by_lsof) = (entry.class.to_string(), seen[fd].class.to_string());
        if by_proc != by_lsof {
            let row = (what(&victim, *fd), &*by_proc, &*by_lsof);
            let known = DIFFERENCES.iter().find(|known| **known == row);
            used.push(known.unwrap_or_else(|| panic!("{fd}: not a known difference: {row:?}")));
        }
    }
    // A difference that no longer exists should leave the table and the guide, too.
    assert_eq!(used.len(), DIFFERENCES.len(), "{used:?}");
    victim.finish();
}

#[test]
fn both_readers_agree_on_mode_deletion_close_on_exec_and_names() {
    let Some(_alone) = lsof_alone() else { return };
    let victim = Victim::start("everything");
    let (proc, lsof) = (by_proc(victim.pid()), by_lsof(victim.pid()));
    let (proc, lsof) = (table(&proc), table(&lsof));
    for (fd, entry) in &proc {
        let (seen, name) = (lsof[fd], what(&victim, *fd));
        let flags = |entry: &FdEntry| (entry.mode, entry.deleted, entry.cloexec);
        assert_eq!(flags(seen), flags(entry), "{fd}: {name}");
        if !AMBIGUOUS.contains(&name) {
            assert_eq!(seen.path(), entry.path(), "{fd}: {name}");
        }
        match (&entry.detail, &seen.detail) {
            (Detail::File(by_proc), Detail::File(by_lsof)) => {
                assert_eq!(by_lsof.size, by_proc.size, "{fd}: {name}");
                assert_eq!(by_lsof.links, by_proc.links, "{fd}: {name}");
            }
            (Detail::Inet(by_proc), Detail::Inet(by_lsof))
                if entry.class.is_tcp() && entry.class == seen.class =>
            {
                assert_eq!(by_lsof.local, by_proc.local, "{fd}: {name}");
                assert_eq!(by_lsof.remote, by_proc.remote, "{fd}: {name}");
            }
            (Detail::Unix(by_proc), Detail::Unix(by_lsof)) => {
                assert_eq!(by_lsof.path, by_proc.path, "{fd}: {name}");
                assert_eq!(by_lsof.kind, by_proc.kind, "{fd}: {name}");
            }
            _ => {}
        }
    }
    victim.finish();
}

#[test]
fn every_snapshot_says_what_lsof_cannot_tell() {
    let Some(_alone) = lsof_alone() else { return };
    let victim = Victim::start("everything");
    let snapshot = by_lsof(victim.pid());
    assert_eq!(snapshot.tier, Tier::Full);
    assert_eq!(snapshot.process.pid, victim.pid());
    assert_eq!(snapshot.process.ppid, Some(std::process::id()));
    assert_eq!(snapshot.process.comm.as_bytes(), b"everything");
    assert_eq!(snapshot.process.exe, by_proc(victim.pid()).process.exe);
    assert_eq!((snapshot.limits.soft, snapshot.table_size), (None, None));
    let mut gaps = snapshot.gaps.iter();
    let limits = gaps.find(|gap| gap.what.contains("limits"));
    assert_eq!(limits.expect("a gap").remedy, "use --via proc");
    victim.finish();
}

#[test]
fn our_own_table_shows_no_pipe_to_lsof() {
    let Some(_alone) = lsof_alone() else { return };
    let before = testkit::listed(std::process::id());
    let snapshot = by_lsof(std::process::id());
    for (fd, entry) in table(&snapshot) {
        assert!(before.contains(&fd), "{entry:?} was opened for asking");
    }
}

#[test]
fn a_socket_in_another_network_is_not_called_unbound() {
    let Some(_alone) = lsof_alone() else { return };
    if !testkit::is_root() {
        return testkit::skip("needs root");
    }
    let victim = Victim::start("namespaced");
    let inner = victim.line()["inside"]["pid"].as_u64();
    let inner = u32::try_from(inner.expect("a number")).expect("a process number");
    let snapshot = by_lsof(inner);
    let classes = snapshot.fds.iter().flatten().map(|e| e.class.to_string());
    let classes: Vec<String> = classes.collect();
    assert!(classes.iter().any(|class| class == "tcp:UNKNOWN"));
    assert!(classes.iter().all(|class| class != "tcp:UNBOUND"));
    victim.finish();
}

#[test]
fn a_missing_process_is_an_error_of_its_own_beside_one_that_is_there() {
    let Some(_alone) = lsof_alone() else { return };
    let ours = std::process::id();
    let results = Lsof::default().snapshots(&[ours, 4_194_304]);
    assert!(results[0].is_ok());
    assert!(matches!(results[1], Err(Error::NoSuchProcess(4_194_304))));
}
