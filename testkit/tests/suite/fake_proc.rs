//! The fake tree looks like the real one.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use testkit::{FakeProc, NOBODY, is_root, run_as, skip};

const INFO: &str = "pos:\t0\nflags:\t0100002\nmnt_id:\t30\nino:\t5\n";

#[test]
fn a_process_has_what_was_written() {
    let mut tree = FakeProc::new();
    tree.process(77)
        .comm("od) d (name")
        .cmdline(&[b"prog", b"\xff\xfe"])
        .uid(1001)
        .limits("256", "unlimited")
        .table_size(2048)
        .fd(0, "/dev/null", INFO)
        .fd(3, b"/tmp/\xff\n(deleted)", INFO)
        .fd_without_info(4, "pipe:[99]")
        .odd_fd(b"\xff", "/x");
    tree.file("sys/fs/file-nr", "1\t0\t2\n");
    let dir = tree.root().join("77");
    let read = |name: &str| String::from_utf8(fs::read(dir.join(name)).unwrap()).unwrap();
    assert!(read("stat").starts_with("77 (od) d (name) S 1 77 "));
    assert!(read("status").contains("\nUid:\t1001\t1001\t1001\t1001\n"));
    assert!(read("status").contains("\nFDSize:\t2048\n"));
    assert!(read("limits").contains("Max open files            256                  unlimited "));
    assert_eq!(fs::read(dir.join("cmdline")).unwrap(), b"prog\0\xff\xfe\0");
    assert_eq!(read("fdinfo/3"), INFO);
    assert!(!dir.join("fdinfo/4").exists());
    let link = fs::read_link(dir.join("fd/3")).unwrap();
    assert_eq!(link.as_os_str().as_bytes(), b"/tmp/\xff\n(deleted)");
    assert_eq!(fs::read_dir(dir.join("fd")).unwrap().count(), 4);
    assert!(tree.root().join("sys/fs/file-nr").exists());
}

#[test]
fn stat_and_limits_have_as_many_columns_as_the_kernel_writes() {
    let mut tree = FakeProc::new();
    tree.process(1);
    let columns = |text: &str| text.rsplit(')').next().unwrap().split_whitespace().count();
    let fake = fs::read_to_string(tree.root().join("1/stat")).unwrap();
    let real = fs::read_to_string("/proc/self/stat").unwrap();
    assert_eq!(columns(&fake), columns(&real));
    let fake = fs::read_to_string(tree.root().join("1/limits")).unwrap();
    let real = fs::read_to_string("/proc/self/limits").unwrap();
    assert_eq!(fake.lines().next(), real.lines().next());
}

#[test]
fn a_denied_dir_cannot_be_listed_by_others() {
    if !is_root() {
        return skip("needs root to become somebody else");
    }
    let mut tree = FakeProc::new();
    tree.process(5).fd(0, "/dev/null", INFO).denied("fd");
    let listed = |name: &str| {
        let mut ls = Command::new("ls");
        ls.arg(tree.root().join("5").join(name));
        run_as(NOBODY, ls).output().unwrap().status.success()
    };
    assert!(listed("fdinfo"));
    assert!(!listed("fd"));
}
