//! Numbers that are reused as fast as possible: a record is consistent or absent.

use std::collections::HashMap;

use fdguard_core::detail::PipeEnd;
use fdguard_core::{Class, Detail, FdEntry, Snapshot};
use fdguard_probe::{Depth, Options, Probe, ProcessWatcher};
use serde_json::Value;
use testkit::{Namespace, Victim, VictimLaunch, have, is_root};

const LOOKS: usize = 320;
/// Below are the standard streams and temporary descriptors.
const FIRST_SLOT: u32 = 20;

/// What belongs together, by path.
struct Oracle(HashMap<String, Value>);

impl Oracle {
    fn of(victim: &Victim) -> Self {
        let files = victim.line()["files"].as_array().unwrap();
        let by_path = |file: &Value| (file["path"].as_str().unwrap().to_owned(), file.clone());
        Self(files.iter().map(by_path).collect())
    }

    /// What is wrong with a record, if anything.
    fn objection(&self, entry: &FdEntry) -> Option<String> {
        let wrong = match &entry.class {
            Class::Regular => self.is_mixed(entry),
            Class::Eventfd => !matches!(&entry.detail, Detail::Eventfd(it) if it.count == Some(7)),
            Class::Pipe => is_no_read_end(entry),
            Class::Udp | Class::Unix => false,
            // The socket was closed before the tables were read: its family is no longer known.
            Class::Other(raw) => &**raw != "socket",
            _ => true,
        };
        wrong.then(|| format!("{entry:?}"))
    }

    fn is_mixed(&self, entry: &FdEntry) -> bool {
        let Detail::File(file) = &entry.detail else {
            return true;
        };
        let Some(row) = file.path.as_str().and_then(|path| self.0.get(path)) else {
            return true;
        };
        let ino = entry.id.map(|id| id.ino);
        // It may be seen before it was moved to its position.
        let position =
            file.pos == row["pos"].as_u64() || entry.fd < FIRST_SLOT && file.pos == Some(0);
        !position
            || entry.target != file.path
            || ino != row["ino"].as_u64()
            || file.size != row["size"].as_u64()
            || entry.mode.map(fdguard_core::Mode::name) != row["mode"].as_str()
            || entry.deleted
    }
}

/// Only read ends stay; a write end is seen for a moment at a scratch number.
fn is_no_read_end(entry: &FdEntry) -> bool {
    let end = match &entry.detail {
        Detail::Pipe(pipe) => pipe.end,
        _ => None,
    };
    match end {
        Some(PipeEnd::Read) => false,
        Some(PipeEnd::Write) => entry.fd >= FIRST_SLOT,
        _ => true,
    }
}

fn assert_of_one_piece(oracle: &Oracle, snapshot: &Snapshot) -> usize {
    let fds = snapshot.fds.as_deref().unwrap();
    let found: Vec<String> = fds
        .iter()
        .filter(|entry| entry.fd > 2)
        .filter_map(|entry| oracle.objection(entry))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    let unread = snapshot.gaps.iter().any(|gap| gap.why.contains("reused"));
    assert!(
        unread || snapshot.count == Some(fds.len() as u64),
        "{} of {:?} without a gap",
        fds.len(),
        snapshot.count
    );
    fds.iter()
        .filter(|entry| entry.class == Class::Regular)
        .count()
}

/// The victim, if possible in its own network namespace: there, the host's sockets need not be
/// dumped for every snapshot.
fn churn(slots: &str) -> VictimLaunch {
    let launch = Victim::of("churn").arg(slots);
    if is_root() && have("unshare") {
        launch.in_new(Namespace::Net)
    } else {
        launch
    }
}

fn look_often(slots: &str, looks: usize, options: Options) {
    let mut victim = churn(slots).start();
    let oracle = Oracle::of(&victim);
    let probe = Probe::new().unwrap();
    let laps = victim.tell("laps")["laps"].as_u64().unwrap();
    let mut files = 0;
    for _ in 0..looks {
        let snapshot = probe.snapshot(victim.pid(), options).unwrap();
        files += assert_of_one_piece(&oracle, &snapshot);
    }
    assert!(files > looks, "only {files} files seen");
    assert!(victim.tell("laps")["laps"].as_u64().unwrap() > laps);
    victim.finish();
}

const ALONE: Options = Options {
    peers: false,
    threads: 1,
    depth: Depth::Auto,
};

#[test]
fn two_files_are_never_mixed_into_one_record() {
    look_often("16", LOOKS, ALONE);
}

#[test]
fn a_file_and_another_kind_are_never_mixed_into_one_record() {
    // An odd number of slots, so that each slot is a file in turn with something else.
    look_often("15", LOOKS, ALONE);
}

#[test]
fn a_walk_of_the_kernel_mixes_nothing() {
    let by_kernel = Options {
        depth: Depth::Kernel,
        ..ALONE
    };
    // Each of these snapshots loads a program and walks the whole host.
    look_often("15", 40, by_kernel);
    look_often("16", 40, by_kernel);
}

#[test]
fn the_walk_over_others_mixes_nothing_in() {
    look_often("9", 25, Options::default());
}

#[test]
fn two_threads_over_a_long_table_mix_nothing() {
    let threads = Options {
        peers: false,
        threads: 2,
        depth: Depth::Auto,
    };
    let mut victim = churn("701").start();
    let oracle = Oracle::of(&victim);
    let probe = Probe::new().unwrap();
    for _ in 0..40 {
        let snapshot = probe.snapshot(victim.pid(), threads).unwrap();
        assert_of_one_piece(&oracle, &snapshot);
    }
    victim.tell("laps");
    victim.finish();
}

#[test]
fn a_watcher_mixes_nothing_and_loses_no_number() {
    let victim = churn("15").start();
    let oracle = Oracle::of(&victim);
    let probe = Probe::new().unwrap();
    let mut watcher = ProcessWatcher::new(&probe, victim.pid()).unwrap();
    let mut open = std::collections::BTreeSet::new();
    let mut untold = 0;
    for round in 0..LOOKS {
        let tick = watcher.list().unwrap();
        for closed in &tick.closed {
            assert!(open.remove(closed), "{closed} closed and never opened");
        }
        for entry in &tick.opened {
            assert!(open.insert(entry.fd), "{} opened twice", entry.fd);
            if entry.fd > 2 && !matches!(entry.class, Class::Unix | Class::Udp) {
                assert_eq!(oracle.objection(entry), None, "round {round}");
            }
        }
        // Only descriptors that are reused too fast to be read are counted but not listed.
        assert!(tick.count >= open.len() as u64, "round {round}");
        untold += tick.count - open.len() as u64;
    }
    assert!(untold <= 3, "{untold}");
    victim.finish();
}
