//! States that no kernel would show, or not on request.

use fdguard_core::{Class, Detail, Snapshot, Text};
use fdguard_probe::{Error, Options, Probe, ProcessWatcher};
use serde_json::json;
use testkit::FakeProc;

const INFO: &str = "pos:\t0\nflags:\t0100002\nmnt_id:\t15\nino:\t77\n";

fn look(tree: &FakeProc, pid: u32) -> Snapshot {
    let probe = Probe::at(tree.root()).unwrap();
    probe.snapshot(pid, Options::default()).unwrap()
}

fn class_at(snapshot: &Snapshot, fd: u32) -> String {
    let fds = snapshot.fds.as_deref().unwrap();
    let entry = fds.iter().find(|entry| entry.fd == fd);
    entry
        .unwrap_or_else(|| panic!("no descriptor {fd}"))
        .class
        .to_string()
}

#[test]
fn a_watch_counts_where_a_directory_has_no_size() {
    let mut tree = FakeProc::new();
    tree.process(10)
        .fd(3, b"anon_inode:[eventfd]", INFO)
        .fd(7, b"anon_inode:[eventfd]", INFO);
    let probe = Probe::at(tree.root()).unwrap();
    let mut watcher = ProcessWatcher::new(&probe, 10).unwrap();
    assert_eq!(watcher.glance().unwrap().count, 2);
    assert_eq!(watcher.tick().unwrap().count, 2);
    assert_eq!(watcher.glance().unwrap().count, 2);
}

#[test]
fn names_that_are_no_text_survive_to_the_last_byte() {
    let mut tree = FakeProc::new();
    tree.process(10)
        .comm(b"a) b\xff (c")
        .cmdline(&[b"/bin/x\xfe", b"", b"--name=\x1b[31m"])
        .fd(3, b"/tmp/\xff\xfe\n.log", INFO)
        .fd(4, b"anon_inode:[\xc3\x28]", INFO);
    let snapshot = look(&tree, 10);
    assert_eq!(snapshot.process.comm.as_bytes(), b"a) b\xff (c");
    assert_eq!(snapshot.process.cmdline.len(), 3);
    let fds = snapshot.fds.as_deref().unwrap();
    assert_eq!(fds[0].target, Text::from(&b"/tmp/\xff\xfe\n.log"[..]));
    let document = super::document(&snapshot);
    assert_eq!(
        document["fds"][0]["target"],
        json!({"bytes": "L3RtcC///goubG9n"})
    );
    assert!(
        document["fds"][1]["class"]
            .as_str()
            .unwrap()
            .starts_with("other:")
    );
    // A written document reads back equal.
    let text = document.to_string();
    let back = fdguard_core::document::read(text.as_bytes()).unwrap();
    assert_eq!(back[0].fds, snapshot.fds);
}

#[test]
fn without_fdinfo_the_links_are_what_is_known() {
    let mut tree = FakeProc::new();
    tree.process(10)
        .fd_without_info(0, "/dev/null")
        .fd_without_info(1, "pipe:[55]")
        .fd_without_info(2, "socket:[66]")
        .fd_without_info(3, "anon_inode:[eventpoll]")
        .fd_without_info(4, "/memfd:x (deleted)")
        .fd_without_info(5, "/gone (deleted)");
    tree.process(11)
        .fd_without_info(1, "pipe:[55]")
        .fd_without_info(3, "anon_inode:[eventfd]")
        .without("fdinfo");
    for pid in [10, 11] {
        let snapshot = look(&tree, pid);
        let fds = snapshot.fds.as_deref().unwrap();
        assert_eq!(snapshot.count, Some(fds.len() as u64));
        assert_eq!(class_at(&snapshot, 1), "pipe");
        for entry in fds {
            assert_eq!((entry.mode, entry.cloexec), (None, None), "{entry:?}");
        }
    }
    let snapshot = look(&tree, 10);
    assert_eq!(snapshot.fds.as_deref().unwrap().len(), 6, "{snapshot:?}");
    assert_eq!(class_at(&snapshot, 3), "eventpoll");
    assert_eq!(class_at(&snapshot, 4), "memfd");
    assert_eq!(
        class_at(&snapshot, 5),
        "regular",
        "without stat nothing says what it was"
    );
    assert_eq!(class_at(&look(&tree, 11), 3), "eventfd");
}

#[test]
fn hostile_numbers_are_no_descriptors_and_break_nothing() {
    let mut tree = FakeProc::new();
    let long = "9".repeat(200);
    tree.process(10)
        .fd(0, "/dev/null", INFO)
        .fd(4_000_000_000, "/dev/null", INFO)
        .odd_fd("4294967296", "/dev/null")
        .odd_fd("-1", "/dev/null")
        .odd_fd("0x10", "/dev/null")
        .odd_fd(b"\xff", "/dev/null")
        .odd_fd(&long, "/dev/null")
        .odd_fd(" 7", "/dev/null")
        .odd_fd("+8", "/dev/null");
    let snapshot = look(&tree, 10);
    let numbers: Vec<u32> = snapshot.fds.unwrap().iter().map(|entry| entry.fd).collect();
    assert_eq!(numbers, [0, 4_000_000_000]);
}

#[test]
fn a_number_with_a_leading_zero_is_no_second_descriptor() {
    let mut tree = FakeProc::new();
    tree.process(10)
        .fd(7, "/dev/null", INFO)
        .odd_fd("007", "/dev/zero");
    let snapshot = look(&tree, 10);
    let numbers: Vec<u32> = snapshot.fds.unwrap().iter().map(|entry| entry.fd).collect();
    assert_eq!(numbers, [7]);
}

#[test]
fn hostile_fdinfo_is_taken_for_what_it_says_and_no_more() {
    let huge = format!("{INFO}lock:\t{}\n", "x".repeat(1 << 20));
    let many = format!(
        "{INFO}{}",
        "tfd: 5 events: 19 data: 5 pos:0 ino:4 sdev:1\n".repeat(20_000)
    );
    let max = u64::MAX;
    let mut tree = FakeProc::new();
    tree.process(10)
        .fd(0, "/dev/null", "")
        .fd(1, "/dev/null", &huge)
        .fd(2, "anon_inode:[eventpoll]", &many)
        .fd(
            3,
            "/x",
            &format!("pos:\t{max}\nflags:\t7777777777777777777777\nmnt_id:\t-1\nino:\t{max}9\n"),
        )
        .fd(
            4,
            "anon_inode:[eventfd]",
            "pos:\t0\nflags:\t02\neventfd-count: zz\n",
        )
        .fd(
            5,
            "anon_inode:[timerfd]",
            "pos:\t0\nflags:\t02\nclockid: 99\nticks: -3\nit_value: (x, y)\n",
        )
        .fd(6, "pipe:[99999999999999999999999]", INFO)
        .fd(7, "socket:[]", INFO)
        .fd(8, "anon_inode:", INFO)
        .fd(9, "not a path", INFO);
    let snapshot = look(&tree, 10);
    let fds = snapshot.fds.as_deref().unwrap();
    assert_eq!(fds.len(), 10, "{:?}", snapshot.gaps);
    let Detail::Eventpoll(epoll) = &fds[2].detail else {
        panic!("{:?}", fds[2])
    };
    assert_eq!(epoll.watching, 20_000);
    for fd in [6, 7, 8, 9] {
        assert!(matches!(fds[fd].class, Class::Other(_)), "{:?}", fds[fd]);
    }
    let text = super::document(&snapshot).to_string();
    fdguard_core::document::read(text.as_bytes()).unwrap();
}

#[test]
fn empty_and_missing_files_of_a_process_are_no_end() {
    let mut tree = FakeProc::new();
    tree.process(10)
        .fd(0, "/dev/null", INFO)
        .file("status", "")
        .file("limits", "")
        .file("cmdline", "");
    let snapshot = look(&tree, 10);
    assert_eq!(snapshot.limits.soft, None);
    assert_eq!(snapshot.table_size, None);
    assert!(snapshot.process.cmdline.is_empty());
    let document = super::document(&snapshot);
    assert_eq!(
        document["percent_of_soft"],
        json!(null),
        "unknown is never zero"
    );
    tree.process(11).file("stat", "");
    let probe = Probe::at(tree.root()).unwrap();
    let error = probe.snapshot(11, Options::default()).unwrap_err();
    assert!(matches!(error, Error::Vanished(11)), "{error:?}");
}

#[test]
fn a_process_without_descriptors_holds_none() {
    let mut tree = FakeProc::new();
    tree.process(10);
    let document = super::document(&look(&tree, 10));
    assert_eq!(document["count"], 0);
    assert_eq!(document["fds"], json!([]));
    assert_eq!(document["highest"], json!(null));
}

#[test]
fn zombies_kernel_threads_and_nobody_are_errors_of_their_own() {
    let mut tree = FakeProc::new();
    tree.process(10).state('Z').parent(7);
    tree.process(11).file(
        "stat",
        "11 (kworker/0:1) I 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0 \
         18446744073709551615 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
    );
    let probe = Probe::at(tree.root()).unwrap();
    let error = |pid| probe.snapshot(pid, Options::default()).unwrap_err();
    assert!(matches!(error(10), Error::Zombie { pid: 10, ppid: 7 }));
    assert!(matches!(error(11), Error::KernelThread(11)));
    assert!(matches!(error(12), Error::NoSuchProcess(12)));
    let nowhere = Probe::at(&tree.root().join("missing")).unwrap_err();
    assert!(matches!(nowhere, Error::NoProc { .. }));
}

const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
    0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 501 1 0 100 0 0 10 0\n   \
    1: 0100007F:1F90 0100007F:C350 08 00000000:00000005 00:00000000 00000000  1000        0 502 1 0 20 4 30 10 -1\n";
const TCP6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
    0: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 503 1 0 100 0 0 10 0\n";
const UNIX: &str = "Num       RefCount Protocol Flags    Type St Inode Path\n\
    0000000000000000: 00000002 00000000 00010000 0001 01 504 /run/a socket\n\
    0000000000000000: 00000003 00000000 00000000 0002 01 505 @abstract\n";

#[test]
fn r2_sockets_are_told_by_the_text_tables_where_netlink_is_not() {
    let mut tree = FakeProc::new();
    let mut process = tree
        .process(10)
        .file("net/tcp", TCP)
        .file("net/tcp6", TCP6)
        .file("net/udp", "header\n")
        .file("net/unix", UNIX);
    for ino in 501..=506 {
        process = process.fd(
            ino,
            format!("socket:[{ino}]"),
            &INFO.replace("77", &ino.to_string()),
        );
    }
    drop(process);
    let snapshot = look(&tree, 10);
    let classes: Vec<String> = (501..=506).map(|fd| class_at(&snapshot, fd)).collect();
    assert_eq!(
        classes,
        [
            "tcp:LISTEN",
            "tcp:CLOSE_WAIT",
            "tcp:LISTEN",
            "unix",
            "unix",
            "other:socket"
        ]
    );
    let document = super::document(&snapshot);
    let detail = |fd| super::record(&document, fd)["detail"].clone();
    assert_eq!(detail(501)["local"], "127.0.0.1:8080");
    assert_eq!(detail(502)["remote"], "127.0.0.1:50000");
    assert_eq!(detail(502)["rx_queue"], 5);
    assert_eq!(detail(503)["local"], "[::1]:80");
    assert_eq!(detail(504)["path"], "/run/a socket");
    assert_eq!(detail(504)["state"], "listening");
    assert_eq!(detail(505)["path"], "@abstract");
}

#[test]
fn r2_without_any_socket_table_a_gap_says_so() {
    let mut tree = FakeProc::new();
    tree.process(10).fd(3, "socket:[77]", INFO);
    let snapshot = look(&tree, 10);
    assert_eq!(class_at(&snapshot, 3), "other:socket");
    assert_eq!(snapshot.gaps.len(), 1);
    assert!(snapshot.gaps[0].what.contains("sockets"));
}

#[test]
fn a_link_and_fdinfo_that_never_agree_are_a_gap_and_no_record() {
    let mut tree = FakeProc::new();
    tree.process(10)
        .fd(0, "/dev/null", INFO)
        .fd(3, "pipe:[78]", INFO)
        .fd(
            4,
            "anon_inode:[timerfd]",
            "pos:\t0\nflags:\t02\neventfd-count: 1\n",
        );
    let snapshot = look(&tree, 10);
    let fds = snapshot.fds.as_deref().unwrap();
    assert_eq!(fds.len(), 1);
    assert_eq!(snapshot.gaps[0].what, "2 descriptors");
    assert_eq!(snapshot.count, Some(3));
}
