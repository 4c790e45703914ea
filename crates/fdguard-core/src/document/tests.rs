//! A written document must read back equal; anything that is not a snapshot must be refused with
//! its reason.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{SnapshotDocument, read};
use crate::class::NAMES;
use crate::detail::{
    Direction, Eventfd, Eventpoll, FileDetail, FileLock, InetDetail, InetPeer, IoUring, Memfd,
    OtherDetail, Pidfd, PipeDetail, PipeEnd, PtyDetail, Signalfd, SocketDetail, Timerfd,
    UnixDetail, UnixPeer, WatchedInode, WatcherDetail,
};
use crate::snapshot::{Ceiling, Cohort, Via};
use crate::testing::{entry, holder, radar, snapshot};
use crate::{
    Class, Detail, FdEntry, FdHolder, Gap, Mode, OpenFlags, Snapshot, Summary, TcpState, Text,
};

fn write(snapshot: &Snapshot) -> Vec<u8> {
    let summary = Summary::summarize(snapshot);
    serde_json::to_vec(&SnapshotDocument::new(snapshot, &summary)).unwrap()
}

fn round_trip(snapshot: &Snapshot) {
    let back = read(&write(snapshot)).unwrap();
    assert_eq!(back, std::slice::from_ref(snapshot));
}

fn odd_name() -> Text {
    Text::from(&b"/tmp/\xff\xfe.log"[..])
}

fn writer() -> FdHolder {
    FdHolder {
        writes: Some(true),
        ..holder(7, 3)
    }
}

fn full_file() -> Detail {
    Detail::File(Box::new(FileDetail {
        path: odd_name(),
        pos: Some(u64::MAX),
        size: Some(4096),
        links: Some(2),
        locks: vec![FileLock {
            kind: "POSIX".to_owned(),
            access: "READ".to_owned(),
            start: 128,
            end: None,
        }],
        device: Some("1:3".to_owned()),
        magic: Some(true),
        dev: Some("8:1".into()),
        interface: Some("tun0".to_owned()),
        peer: vec![writer()],
    }))
}

fn full_sockets() -> Vec<(Class, Detail)> {
    let inet = InetDetail {
        local: Some("[::1]:80".to_owned()),
        remote: Some("[::1]:5000".to_owned()),
        state: Some("CLOSE_WAIT".into()),
        rx_queue: Some(1),
        tx_queue: Some(0),
        uid: Some(1000),
        protocol: Some("UDP-Lite".to_owned()),
        netns: Some(4_026_531_840),
        peer: Some(InetPeer {
            ino: 98,
            holders: vec![writer()],
            holders_more: 1,
        }),
    };
    let unix = UnixDetail {
        path: Some("@abstract".into()),
        kind: Some("stream".into()),
        state: Some("connected".into()),
        peer: Some(UnixPeer {
            ino: 99,
            path: Some(odd_name()),
            holders: vec![writer()],
            holders_more: 0,
        }),
        shutdown: Some(vec![Direction::Read, Direction::Write]),
        netns: Some(4_026_531_840),
    };
    let netlink = SocketDetail {
        protocol: Some("ROUTE".to_owned()),
        port: Some(77),
        groups: Some(vec![1, 5]),
        kind: Some("raw".into()),
        interface: Some("lo".to_owned()),
        local: Some("1:2".to_owned()),
        remote: Some("3:4".to_owned()),
        netns: Some(4_026_531_840),
    };
    vec![
        (
            Class::Tcp(TcpState::CloseWait),
            Detail::Inet(Box::new(inet)),
        ),
        (Class::Unix, Detail::Unix(Box::new(unix))),
        (Class::Netlink, Detail::Socket(Box::new(netlink))),
    ]
}

fn full_channels() -> Vec<(Class, Detail)> {
    let pipe = PipeDetail {
        end: Some(PipeEnd::Both),
        peer: Some(vec![]),
        peer_more: 0,
        path: Some("/run/fifo".into()),
    };
    let epoll = Eventpoll {
        watching: 3,
        ghosts: Some(1),
        targets: vec![4, 5, 6],
        ghost_fds: vec![6],
    };
    let counter = Eventfd {
        count: Some(u64::MAX - 1),
        id: Some(12),
        semaphore: Some(true),
    };
    let timer = Timerfd {
        clock: Some("monotonic".to_owned()),
        ticks: Some(2),
        remaining: Some(0.1 + 0.2),
        interval: Some(0.0),
    };
    let pty = PtyDetail {
        index: Some(4),
        path: "/dev/ptmx".into(),
        peer: vec![writer()],
    };
    vec![
        (Class::Fifo, Detail::Pipe(Box::new(pipe))),
        (Class::Eventpoll, Detail::Eventpoll(Box::new(epoll))),
        (Class::Eventfd, Detail::Eventfd(counter)),
        (Class::Timerfd, Detail::Timerfd(Box::new(timer))),
        (Class::PtyMaster, Detail::Pty(Box::new(pty))),
    ]
}

fn full_others() -> Vec<(Class, Detail)> {
    let signals = Signalfd {
        signals: vec![2, 15],
    };
    let handle = Pidfd {
        pid: Some(70),
        alive: Some(false),
        command: Some(odd_name()),
    };
    let memory = Memfd {
        name: "buffer".into(),
        size: Some(8192),
    };
    let ring = IoUring {
        files: Some(3),
        buffers: Some(0),
    };
    let fields = BTreeMap::from([("rules".to_owned(), odd_name())]);
    vec![
        (Class::Signalfd, Detail::Signalfd(signals)),
        (
            Class::Inotify,
            Detail::Watcher(WatcherDetail {
                watches: 9,
                inodes: vec![WatchedInode {
                    ino: 4,
                    dev: "8:1".to_owned(),
                }],
            }),
        ),
        (Class::Pidfd, Detail::Pidfd(handle)),
        (Class::Memfd, Detail::Memfd(memory)),
        (Class::IoUring, Detail::IoUring(ring)),
        (
            Class::Other("[landlock]".into()),
            Detail::Fields(OtherDetail { fields }),
        ),
    ]
}

fn numbered(details: Vec<(Class, Detail)>) -> Snapshot {
    let entries = (3..).zip(details).map(|(fd, (class, detail))| FdEntry {
        detail,
        shared_with: vec![writer()],
        shared_more: 7,
        open_file: None,
        flags: Some(OpenFlags::from_bits(0o4000)),
        ..entry(fd, class)
    });
    snapshot(entries.collect())
}

#[test]
fn r1_every_kind_of_detail_comes_back_equal() {
    round_trip(&numbered(vec![(Class::SqliteDb, full_file())]));
    round_trip(&numbered(full_sockets()));
    round_trip(&numbered(full_channels()));
    round_trip(&numbered(full_others()));
}

#[test]
fn r1_every_class_comes_back_with_an_empty_detail() {
    let classes = NAMES.iter().map(|(class, _)| class.clone());
    let entries = (3..).zip(classes).map(|(fd, class)| entry(fd, class));
    round_trip(&snapshot(entries.collect()));
}

#[test]
fn r1_a_descriptor_that_could_not_be_read_comes_back_as_such() {
    let classes = NAMES.iter().map(|(class, _)| class.clone());
    let unread = (3..).zip(classes).map(|(fd, class)| FdEntry {
        mode: None,
        cloexec: None,
        id: None,
        detail: Detail::Fields(OtherDetail::default()),
        ..entry(fd, class)
    });
    round_trip(&snapshot(unread.collect()));
}

#[test]
fn r1_process_host_and_gaps_come_back_equal() {
    let mut full = snapshot(vec![entry(3, Class::Regular).mode(Some(Mode::Path))]);
    full.via = Via::Lsof;
    full.table_size = Some(2048);
    full.process.start_time = Some("2026-11-02T08:15:30.123456789Z".parse().unwrap());
    full.process.cmdline = vec!["app".into(), odd_name()];
    full.process.cohorts = vec![Cohort {
        command: "npx".into(),
        count: 20,
        zombies: 1,
    }];
    full.host.ptys = Ceiling {
        used: None,
        at: Some(4096),
    };
    full.gaps = vec![Gap::new("peers", "permission denied", "run as root")];
    round_trip(&full);
    round_trip(&radar(77));
}

#[test]
fn r1_several_snapshots_in_one_document_come_back_in_order() {
    let one: serde_json::Value = serde_json::from_slice(&write(&radar(1))).unwrap();
    let two: serde_json::Value = serde_json::from_slice(&write(&radar(2))).unwrap();
    let many = serde_json::json!({"schema": "fdguard.snapshots/1", "snapshots": [one, two]});
    let back = read(many.to_string().as_bytes()).unwrap();
    assert_eq!(back, [radar(1), radar(2)]);
}

#[test]
fn r1_what_is_no_snapshot_is_refused_with_its_reason() {
    for (json, reason) in [
        ("hello", "not a snapshot: expected value at line 1 column 1"),
        (
            "",
            "not a snapshot: EOF while parsing a value at line 1 column 0",
        ),
        (
            "{}",
            "not a snapshot: missing field `schema` at line 1 column 2",
        ),
        (
            r#"{"schema": "fdguard.diagnosis/1"}"#,
            r#"not a snapshot: its schema is "fdguard.diagnosis/1", expected "fdguard.snapshot/1""#,
        ),
        (
            r#"{"schema": "fdguard.snapshot/1"}"#,
            "not a snapshot: missing field `taken_at` at line 1 column 32",
        ),
    ] {
        assert_eq!(read(json.as_bytes()).unwrap_err().to_string(), reason);
    }
}

#[test]
fn r1_a_stranger_among_several_snapshots_is_refused() {
    let mut one: serde_json::Value = serde_json::from_slice(&write(&radar(1))).unwrap();
    one["schema"] = "fdguard.snapshot/9".into();
    let many = serde_json::json!({"schema": "fdguard.snapshots/1", "snapshots": [one]});
    let error = read(many.to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("fdguard.snapshot/9"), "{error}");
}

#[test]
fn r1_a_wrong_detail_names_its_descriptor() {
    let mut json: serde_json::Value =
        serde_json::from_slice(&write(&numbered(full_sockets()))).unwrap();
    json["fds"][0]["detail"] = serde_json::json!({"rx_queue": "many"});
    let error = read(json.to_string().as_bytes()).unwrap_err().to_string();
    assert!(
        error.starts_with("not a snapshot: detail of descriptor 3: "),
        "{error}"
    );
}

proptest! {
    #[test]
    fn r1_reading_anything_never_panics(bytes: Vec<u8>) {
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn r1_seconds_come_back_to_the_last_bit(seconds in 0.0..1e9_f64) {
        let timer = Timerfd { remaining: Some(seconds), ..Timerfd::default() };
        let detail = Detail::Timerfd(Box::new(timer));
        round_trip(&numbered(vec![(Class::Timerfd, detail)]));
    }
}
