//! Recorded output of lsof 4.95 on Linux, and a macOS sample based on the format's description.

use fdguard_core::snapshot::Via;
use fdguard_core::{Class, Detail, FdEntry, Mode, Snapshot, TcpState, Tier};
use jiff::Timestamp;
use proptest::prelude::*;

use super::{Circumstances, next_with_tail, snapshot};
use crate::parse::lsof::parse;

fn seen_in(output: &str, circumstances: Circumstances<'_>) -> Snapshot {
    // `|` represents NUL, to keep the samples readable.
    let bytes: Vec<u8> = output
        .bytes()
        .map(|byte| if byte == b'|' { 0 } else { byte })
        .collect();
    let processes = parse(&bytes);
    let process = &processes[0];
    snapshot(
        process.pid().unwrap(),
        process,
        Timestamp::UNIX_EPOCH,
        circumstances,
    )
}

fn seen(output: &str) -> Snapshot {
    seen_in(output, Circumstances::default())
}

fn at(snapshot: &Snapshot, fd: u32) -> &FdEntry {
    let fds = snapshot.fds.as_ref().unwrap();
    fds.iter().find(|entry| entry.fd == fd).unwrap()
}

const LINUX: &str = "p812|R1|cserver|u1000|
fcwd|a |l |tDIR|D0xfe00|s4096|i2|k21|n/|
frtd|a |l |tDIR|D0xfe00|s4096|i2|k21|n/|
ftxt|a |l |tREG|D0xfe00|s900|i30|k2|n/usr/bin/server|
fmem|a |l |tREG|D0xfe00|i31|k1|n/usr/lib/libc.so.6|
f0|ar|l |tCHR|GLG|D0x6|r0x103|i3|k1|n/dev/null|
f1|aw|l |tFIFO|GW|D0xf|i41|k1|npipe|
f2|au|l |tCHR|GRW,LG,CX|D0x1a|r0x8800|i3|k1|n/dev/pts/0|
f3|au|l |tREG|GCX,PATH|D0xfe00|s100|i50|k1|n/srv/plain.txt|
f4|aw|l |tREG|GW,LG,CX|D0xfe00|s11|i51|k0|n/srv/was (deleted) (deleted)|
f5|aw|l |tREG|GW,LG,CX|D0xfe00|s0|i52|k1|n/srv/foo (deleted)|
f6|aw|lw|tREG|GW,LG,CX|D0xfe00|s9|i53|k1|n/srv/part|
f7|aw|lW|tREG|GW,LG,CX|D0xfe00|s9|i54|k1|n/srv/whole|
f8|ar|l |tFIFO|D0xf|i42|k1|npipe|
f9|au|l |tsock|GRW,CX|D0x9|i60|nprotocol: TCP|
f10|au|l |tIPv4|GRW,CX|d61|PTCP|n127.0.0.1:38039->127.0.0.1:33644|TST=CLOSE_WAIT|TQR=1|TQS=0|
f11|au|l |tIPv6|GRW,CX|d62|PTCP|n*:443|TST=LISTEN|TQR=0|TQS=0|
f12|au|l |tunix|GRW,CX|d0x00000000cf6f1842|i63|n/run/a type=b.sock type=STREAM|TST=LISTEN|
f13|au|l |tunix|GRW,CX|d0x00000000cf6f1843|i64|ntype=DGRAM|TST=UNCONNECTED|
f14|au|l |ta_inode|GRW,CX|D0x10|s0|i18|k1|n[eventpoll:8,410]|
f15|au|l |ta_inode|GRW,CX|D0x10|s0|i18|k1|n[eventfd:1586]|
f16|au|l |ta_inode|GRW,CX|D0x5|s0|i70|k1|n[pidfd:4711]|
f17|ar|l |ta_inode|GCX|D0x10|s0|i18|k1|ninotify|
f18|au|l |ta_inode|GRW,CX|D0x10|s0|i18|k1|n[landlock-ruleset]|
f19|au|l |tREG|GRW,LG,CX|D0x1|s8192|i71|k0|n/memfd:odd (deleted) (deleted)|
f20|ar|l |tREG|GLG,CX|D0x4|s0|i4026531833|k1|nnet|
f21|au|l |tREG|GRW,LG,CX|D0xfe00|s4096|i80|k1|n/srv/state.db|
f22|au|l |tREG|GRW,LG,CX|D0xfe00|s4152|i81|k1|n/srv/state.db-wal|
f23|au|l |tREG|GRW,LG,CX|D0xfe00|s4096|i82|k1|n/srv/alone.db|
f24|au|l |tCHR|GRW,LG,CX|D0x6|r0x502|i91|k1|n/dev/ptmx|
f25|au|l |tnetlink|GRW,CX|i92|nROUTE|
f26|au|l |tunknown|n/proc/812/fd/26 (readlink: Permission denied)|
";

#[test]
fn only_numbered_rows_are_descriptors() {
    let snapshot = seen(LINUX);
    assert_eq!((snapshot.tier, snapshot.via), (Tier::Full, Via::Lsof));
    assert_eq!(snapshot.count, Some(27));
    let numbers: Vec<u32> = snapshot
        .fds
        .iter()
        .flatten()
        .map(|entry| entry.fd)
        .collect();
    assert_eq!(numbers, (0..26).collect::<Vec<u32>>());
}

#[test]
fn the_process_is_told_as_far_as_lsof_knows_it() {
    let process = seen(LINUX).process;
    assert_eq!(
        (process.pid, process.ppid, process.uid),
        (812, Some(1), Some(1000))
    );
    assert_eq!(process.comm.as_bytes(), b"server");
    assert_eq!(process.exe.unwrap().as_bytes(), b"/usr/bin/server");
    assert_eq!((process.threads, process.start_ticks), (None, None));
}

#[test]
fn classes_of_a_linux_process() {
    let snapshot = seen(LINUX);
    let expected = [
        "chardev",
        "pipe",
        "tty",
        "regular",
        "deleted",
        "regular",
        "regular",
        "regular",
        "pipe",
        "tcp:UNBOUND",
        "tcp:CLOSE_WAIT",
        "tcp:LISTEN",
        "unix",
        "unix",
        "eventpoll",
        "eventfd",
        "pidfd",
        "inotify",
        "other:[landlock-ruleset]",
        "memfd",
        "other:net",
        "sqlite-db",
        "sqlite-wal",
        "regular",
        "pty-master",
        "netlink",
    ];
    let found: Vec<String> = snapshot
        .fds
        .iter()
        .flatten()
        .map(|e| e.class.to_string())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn modes_and_close_on_exec_come_from_the_flags() {
    let snapshot = seen(LINUX);
    let told = |fd| (at(&snapshot, fd).mode, at(&snapshot, fd).cloexec);
    assert_eq!(told(0), (Some(Mode::Read), Some(false)));
    assert_eq!(told(3), (Some(Mode::Path), Some(true)));
    // No flag at all: lsof omits the field, and other rows show that it would report it.
    assert_eq!(told(8), (Some(Mode::Read), Some(false)));
}

#[test]
fn close_on_exec_is_a_gap_where_no_row_tells_it() {
    let snapshot = seen("p5|c-|\nf0|ar|tCHR|GLG|n/dev/null|\n");
    assert_eq!(at(&snapshot, 0).cloexec, None);
    assert!(snapshot.gaps.iter().any(|gap| gap.what == "close-on-exec"));
    let on_linux = Circumstances {
        flags_are_whole: true,
        ..Circumstances::default()
    };
    let snapshot = seen_in("p5|c-|\nf0|ar|tCHR|GLG|n/dev/null|\n", on_linux);
    assert_eq!(at(&snapshot, 0).cloexec, Some(false));
}

#[test]
fn deletion_is_told_by_the_link_count_not_by_the_text() {
    let snapshot = seen(LINUX);
    let told = |fd| {
        (
            at(&snapshot, fd).deleted,
            at(&snapshot, fd).target.to_lossy().into_owned(),
        )
    };
    assert_eq!(told(4), (true, "/srv/was (deleted)".to_owned()));
    assert_eq!(told(5), (false, "/srv/foo (deleted)".to_owned()));
    assert_eq!(told(19), (false, "odd (deleted)".to_owned()));
}

#[test]
fn a_lock_on_a_part_is_a_gap_and_one_on_the_whole_is_not() {
    let snapshot = seen(LINUX);
    let locks = |fd| match &at(&snapshot, fd).detail {
        Detail::File(file) => file.locks.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(locks(6), []);
    assert_eq!(
        (locks(7)[0].access.as_str(), locks(7)[0].kind.as_str()),
        ("WRITE", "UNKNOWN")
    );
    let gap = snapshot
        .gaps
        .iter()
        .find(|gap| gap.what.contains("byte-range locks"));
    assert_eq!(gap.unwrap().what, "the byte-range locks of descriptors 6");
}

#[test]
fn addresses_read_like_those_of_proc() {
    let snapshot = seen(LINUX);
    let Detail::Inet(listener) = &at(&snapshot, 11).detail else {
        panic!()
    };
    assert_eq!(listener.local.as_deref(), Some("[::]:443"));
    let Detail::Inet(client) = &at(&snapshot, 10).detail else {
        panic!()
    };
    assert_eq!(client.remote.as_deref(), Some("127.0.0.1:33644"));
    assert_eq!((client.rx_queue, client.tx_queue), (Some(1), Some(0)));
    let Detail::Unix(unix) = &at(&snapshot, 12).detail else {
        panic!()
    };
    assert_eq!(
        unix.path.as_ref().unwrap().as_bytes(),
        b"/run/a type=b.sock"
    );
    assert_eq!(
        (unix.kind.as_deref(), unix.state.as_deref()),
        (Some("stream"), Some("listening"))
    );
    assert_eq!(at(&snapshot, 13).target.as_bytes(), b"socket:[64]");
}

#[test]
fn an_unlisted_socket_in_another_network_is_not_called_unbound() {
    let circumstances = Circumstances {
        foreign_network: true,
        ..Circumstances::default()
    };
    let snapshot = seen_in(LINUX, circumstances);
    assert_eq!(at(&snapshot, 9).class, Class::Tcp(TcpState::Unknown));
    assert!(
        snapshot
            .gaps
            .iter()
            .any(|gap| gap.why.contains("network namespace"))
    );
}

#[test]
fn a_registration_of_a_closed_number_is_a_ghost() {
    let snapshot = seen(LINUX);
    let Detail::Eventpoll(epoll) = &at(&snapshot, 14).detail else {
        panic!()
    };
    assert_eq!((epoll.watching, &epoll.ghost_fds[..]), (2, &[410][..]));
}

#[test]
fn a_list_of_registrations_that_is_cut_off_is_not_counted() {
    let snapshot = seen("p5|c-|\nf3|au|ta_inode|n[eventpoll:1,2...]|\n");
    assert_eq!(at(&snapshot, 3).class, Class::Eventpoll);
    assert!(matches!(at(&snapshot, 3).detail, Detail::Fields(_)));
}

#[test]
fn a_refused_table_is_a_gap_not_an_empty_table() {
    let snapshot = seen(
        "p812|R1|cserver|u0|\nfcwd|a |l |tunknown|n/proc/812/cwd (readlink: Permission denied)|\n\
         ftxt|a |l |tunknown|n/proc/812/exe (readlink: Permission denied)|\n\
         fNOFD|a |l |n/proc/812/fd (opendir: Permission denied)|\n",
    );
    assert_eq!((snapshot.tier, snapshot.count), (Tier::Radar, None));
    assert_eq!((snapshot.fds, snapshot.process.exe), (None, None));
    assert_eq!(snapshot.gaps[0].why, "lsof: opendir: Permission denied");
}

#[test]
fn a_descriptor_that_cannot_be_read_is_counted_and_said() {
    let snapshot = seen(LINUX);
    assert_eq!(snapshot.gaps[0].what, "the kinds of 1 descriptor");
    let blind =
        seen("p1|cinit|u0|\nf0|a |l |tunknown|n/proc/1/fd/0 (readlink: Permission denied)|\n");
    assert_eq!(
        (blind.tier, blind.count, blind.fds),
        (Tier::Radar, Some(1), None)
    );
}

#[test]
fn our_own_ends_of_the_pipes_to_lsof_are_hidden() {
    let circumstances = Circumstances {
        hidden: &[1, 8],
        ..Circumstances::default()
    };
    let snapshot = seen_in(LINUX, circumstances);
    assert_eq!(snapshot.count, Some(25), "one of them could not be read");
    assert!(
        snapshot
            .fds
            .unwrap()
            .iter()
            .all(|entry| entry.fd != 1 && entry.fd != 8)
    );
}

#[test]
fn cut_numbers_are_completed_and_said_to_be() {
    let snapshot =
        seen("p5|c-|\nf9999|tCHR|GCX|n/a|\nf*000|tCHR|n/b|\nf*345|tCHR|n/c|\nf*001|tCHR|n/d|\n");
    let numbers: Vec<u32> = snapshot
        .fds
        .iter()
        .flatten()
        .map(|entry| entry.fd)
        .collect();
    assert_eq!(numbers, [9999, 10_000, 10_345, 11_001]);
    assert_eq!(
        snapshot.gaps[0].what,
        "the exact numbers of 3 descriptors from 10000 up"
    );
    assert_eq!(next_with_tail(10_345, 345), 11_345);
}

/// Based on lsof's manual page and its sources for Darwin; not recorded on a Mac.
const MACOS: &str = "p501|R1|cFinder|u501|
fcwd|a |l |tDIR|D0x1000004|s640|i2|k20|n/|
ftxt|a |l |tREG|D0x1000004|s900|i30|k1|n/System/Finder|
ftxt|a |l |tREG|D0x1000004|s900|i31|k1|n/usr/lib/dyld|
f0|ar|l |tCHR|GR;|D0x7e2ba0a8|r0x3000002|i317|k1|n/dev/null|
f1|au|l |tCHR|GR,W;|D0x7e2ba0a8|r0x10000003|i641|k1|n/dev/ttys003|
f3|au|l |tKQUEUE|GR,W;CX|ncount=0, state=0xa|
f4|au|l |tPIPE|GR,W;CX|d0x2e6f6bc1f8a3c1d5|s16384|n->0x8fd0c1f8a3c1d5e7|
f5|au|l |tunix|GR,W;|d0x8fd0c1f8a3c1d5ea|n->0x8fd0c1f8a3c1d5eb|
f6|au|l |tIPv4|GR,W;CX|d0x8fd0c1f8a3c1d5ec|PTCP|n*:*|TST=CLOSED|TQR=0|TQS=0|
f7|au|l |tIPv4|GR,W;CX|d0x8fd0c1f8a3c1d5ed|PTCP|n10.0.0.2:50123->10.0.0.7:443|TST=FIN_WAIT_2|TQR=0|TQS=0|
f8|au|l |tIPv4|GR,W;|d0x8fd0c1f8a3c1d5ee|PUDP|n*:*|
f9|ar|l |tREG|GR;CX|D0x1000004|s100|i77|k1|n/Users/ada/caf\\xc3\\xa9.txt|
f10|au|l |tPSXSHM|GR,W;CX|nobj=0x8fd0c1f8a3c1d5ef|
f11|au|l |tsystm|GR,W;|d0x8fd0c1f8a3c1d5f0|n[1:1:0]|
";

#[test]
fn classes_of_a_macos_process() {
    let snapshot = seen(MACOS);
    let expected = [
        "chardev",
        "tty",
        "other:KQUEUE",
        "pipe",
        "unix",
        "tcp:UNBOUND",
        "tcp:FIN_WAIT2",
        "udp",
        "regular",
        "other:PSXSHM",
        "other:systm",
    ];
    let found: Vec<String> = snapshot
        .fds
        .iter()
        .flatten()
        .map(|e| e.class.to_string())
        .collect();
    assert_eq!(found, expected);
    assert_eq!(at(&snapshot, 5).target.as_bytes(), b"->0x8fd0c1f8a3c1d5eb");
    assert_eq!(
        at(&snapshot, 9).target.as_str(),
        Some("/Users/ada/café.txt")
    );
    assert_eq!(
        (at(&snapshot, 3).cloexec, at(&snapshot, 5).cloexec),
        (Some(true), Some(false))
    );
    assert_eq!(at(&snapshot, 4).id.unwrap().ino, 0x2e6f_6bc1_f8a3_c1d5);
    assert_eq!(snapshot.process.exe.unwrap().as_bytes(), b"/System/Finder");
}

proptest! {
    #[test]
    fn any_output_gives_a_snapshot_in_order(bytes: Vec<u8>, rows in "(f[0-9*]{1,5}\n(t[A-Za-z_0-9]{0,8}\n)?(n[ -~]{0,20}\n)?){0,8}") {
        let output = [b"p7\n", rows.as_bytes(), &bytes].concat();
        for process in parse(&output) {
            let seen = snapshot(7, &process, Timestamp::UNIX_EPOCH, Circumstances::default());
            let fds = seen.fds.unwrap_or_default();
            prop_assert!(fds.is_sorted_by(|a, b| a.fd < b.fd));
        }
    }
}
