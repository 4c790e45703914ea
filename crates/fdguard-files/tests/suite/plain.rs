//! Files that are not databases.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use fdguard_files::lease::LeaseAnswer;
use fdguard_files::{FileVerdict, Kind};
use testkit::ScriptedProcess;

use super::{alert, look};

#[test]
fn r42_a_record_in_a_transcript_has_its_line_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session.jsonl");
    let mut bytes = b"{\"type\":\"user\",\"n\":1}\n".repeat(5000);
    let at = bytes.len() as u64;
    bytes.extend(alert());
    bytes.extend(b"{\"type\":\"user\",\"n\":2}\n".repeat(5000));
    fs::write(&path, &bytes).unwrap();
    let found = look(&path);
    assert_eq!(
        (found.kind, found.verdict),
        (Kind::Text, FileVerdict::Damaged)
    );
    assert_eq!(found.findings[0].offset, Some(at));
    assert!(
        found.summary.contains("at the start of line 5001"),
        "{}",
        found.summary
    );
}

#[test]
fn programs_and_pictures_of_this_machine_are_clean() {
    let mut seen = 0;
    for dir in ["/usr/bin", "/etc", "/usr/share/zoneinfo"] {
        let Ok(listing) = fs::read_dir(dir) else {
            continue;
        };
        for entry in listing.flatten().take(60) {
            let is_small = entry
                .path()
                .metadata()
                .is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 22);
            if !is_small || fs::File::open(entry.path()).is_err() {
                continue;
            }
            let file = fs::File::open(entry.path()).unwrap();
            let first = fdguard_files::read::piece(&file, 0, 65_536).unwrap();
            let found = if fdguard_files::plain::is_text(&first) {
                fdguard_files::plain::scan(&file).unwrap()
            } else {
                fdguard_files::plain::at_start(&first)
            };
            let wrong: Vec<_> = found
                .iter()
                .filter(|one| one.rule == "tls-record")
                .collect();
            assert!(wrong.is_empty(), "{}: {wrong:?}", entry.path().display());
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} files");
}

#[test]
fn r44_a_writer_is_named_by_the_lease_and_by_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    fs::write(&path, "one line\n".repeat(10)).unwrap();
    assert_eq!(look(&path).writers.lease, LeaseAnswer::NoWriter);
    let script = ["-c", "exec 5>>\"$1\"; echo ready; read x", "sh"];
    let child = ScriptedProcess::of(Command::new("sh").args(script).arg(&path));
    let found = look(&path);
    assert_eq!(
        (found.writers.lease, found.writers.seen),
        (LeaseAnswer::Writer, 1)
    );
    let process = &found.holders.processes[0];
    assert_eq!((process.pid, &process.main.fds), (child.id(), &vec![5]));
    assert_eq!(found.verdict, FileVerdict::Clean);
    drop(child);
    assert_eq!(look(&path).writers.lease, LeaseAnswer::NoWriter);
}

#[test]
fn r44_a_writer_that_is_in_no_table_is_explained() {
    // In flight: sent through a socket and not received.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    fs::write(&path, "one line\n".repeat(10)).unwrap();
    let script = "import os,socket,sys\na,b=socket.socketpair()\nfd=os.open(sys.argv[1],os.O_WRONLY)\nsocket.send_fds(a,[b'x'],[fd])\nos.close(fd)\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = ScriptedProcess::python(script, &path);
    let found = look(&path);
    assert_eq!(
        (found.writers.lease, found.writers.seen),
        (LeaseAnswer::Writer, 0)
    );
    assert!(
        found.writers.note.unwrap().contains("a writer exists"),
        "the note explains"
    );
    drop(child);
}

#[test]
fn r44_a_mapping_without_a_descriptor_is_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.bin");
    fs::write(&path, vec![7; 8192]).unwrap();
    let script = "import mmap,os,sys\nfd=os.open(sys.argv[1],os.O_RDWR)\nm=mmap.mmap(fd,8192)\nos.close(fd)\nprint('ready',flush=True)\nsys.stdin.read()";
    let child = ScriptedProcess::python(script, &path);
    let found = look(&path);
    assert_eq!(
        (found.writers.lease, found.writers.seen),
        (LeaseAnswer::Writer, 1)
    );
    assert!(found.holders.processes[0].main.mapped);
    drop(child);
}

#[test]
fn a_side_file_points_to_its_database() {
    let made = super::MadeDatabase::with_log(true);
    let found = look(&made.beside("-wal"));
    assert_eq!(
        (found.verdict, found.findings[0].rule),
        (FileVerdict::Clean, "side-file")
    );
}

/// A ring with the file registered, and no descriptor for it.
const RING: &str = "import ctypes,os,sys
libc=ctypes.CDLL(None,use_errno=True)
ring=libc.syscall(425,8,(ctypes.c_ubyte*120)())
fd=os.open(sys.argv[1],os.O_WRONLY)
rc=libc.syscall(427,ring,2,(ctypes.c_int*1)(fd),1) if ring>=0 else -1
os.close(fd)
print('ready' if rc==0 else 'refused',flush=True)
sys.stdin.read()";

#[test]
fn r44_a_file_in_an_io_uring_is_explained() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    fs::write(&path, "one line\n".repeat(10)).unwrap();
    let mut child = Command::new("python3")
        .args(["-c", RING])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    if line == "ready\n" {
        let found = look(&path);
        assert_eq!(
            (found.writers.lease, found.writers.seen),
            (LeaseAnswer::Writer, 0)
        );
        let note = found.writers.note.unwrap();
        assert!(note.contains("io_uring"), "{note}");
    } else {
        testkit::skip("io_uring is not allowed here");
    }
    drop(child.stdin.take());
    child.wait().unwrap();
}
