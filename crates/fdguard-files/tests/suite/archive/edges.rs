//! What is refused, and what fails in the middle: the file stays, and the others continue.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use fdguard_files::archive::{ArchiveOutcome, ArchiveTrouble};
use rustix::thread::UnshareFlags;
use testkit::ScriptedProcess;

use super::{Place, listed, one};

#[test]
fn what_is_no_file_is_refused_and_the_others_go_on() {
    let place = Place::same();
    let dir = place.logs.path().join("folder");
    fs::create_dir(&dir).unwrap();
    let pipe = place.logs.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let good = place.file("good", "x\n");
    let link = place.logs.path().join("link");
    symlink(&good, &link).unwrap();
    let missing = place.logs.path().join("missing");
    let nowhere = place.logs.path().join("no/such/folder");
    let files = [dir, pipe, link.clone(), missing, nowhere, good];
    let report = place.archive(Duration::ZERO).run(&files);
    let kinds: Vec<_> = report
        .files
        .iter()
        .map(|receipt| receipt.error.as_ref().map(|error| error.kind))
        .collect();
    assert_eq!(
        kinds,
        [
            Some(ArchiveTrouble::IsDirectory),
            Some(ArchiveTrouble::NotAFile),
            Some(ArchiveTrouble::IsLink),
            Some(ArchiveTrouble::NotFound),
            Some(ArchiveTrouble::NotFound),
            None
        ]
    );
    assert!(!report.success);
    assert_eq!(report.files[0].outcome, ArchiveOutcome::NotSeen);
    assert_eq!(report.files[2].outcome, ArchiveOutcome::Kept);
    assert_eq!(listed(place.to.path()), ["good"]);
    assert!(link.is_symlink());
    place.assert_tidy();
}

#[test]
fn a_link_is_followed_when_asked_but_not_out_of_the_dir() {
    let place = Place::same();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "s\n").unwrap();
    place.file("real", "x\n");
    let inner = place.logs.path().join("inner");
    symlink("real", &inner).unwrap();
    let outer = place.logs.path().join("outer");
    symlink(&secret, &outer).unwrap();
    let way = place.logs.path().join("way");
    symlink(outside.path(), &way).unwrap();
    let dots = place
        .logs
        .path()
        .join("..")
        .join(outside.path().file_name().unwrap())
        .join("secret");
    let mut archive = place.archive(Duration::ZERO);
    archive.follow = true;
    archive.within = Some(place.logs.path().to_owned());
    let report = archive.run(&[inner, outer, way.join("secret"), dots]);
    let kinds: Vec<_> = report
        .files
        .iter()
        .map(|receipt| receipt.error.as_ref().map(|error| error.kind))
        .collect();
    let outside = Some(ArchiveTrouble::Outside);
    assert_eq!(kinds, [None, outside, outside, outside], "{report:?}");
    assert_eq!(listed(place.to.path()), ["real"]);
    assert_eq!(fs::read_to_string(secret).unwrap(), "s\n");
}

#[test]
fn what_is_in_the_archive_already_is_left_there() {
    let place = Place::same();
    let path = place.to.path().join("a");
    fs::write(&path, "x\n").unwrap();
    let receipt = place.once(&path);
    assert_eq!(receipt.error.unwrap().kind, ArchiveTrouble::InArchive);
    assert_eq!(fs::read_to_string(path).unwrap(), "x\n");
}

#[test]
fn an_archive_that_is_no_dir_leaves_every_file_where_it_is() {
    let place = Place::same();
    let path = place.file("a", "x\n");
    let mut archive = place.archive(Duration::ZERO);
    archive.to = place.file("b", "");
    let receipt = one(archive.run(std::slice::from_ref(&path)));
    assert_eq!(receipt.outcome, ArchiveOutcome::Kept);
    assert!(path.exists());
}

#[test]
fn r50_a_full_disk_leaves_the_original_and_no_part_of_a_copy() {
    let place = Place::same();
    // A mount only for this thread and its children.
    if testkit::sys::unshare(UnshareFlags::NEWNS).is_err() {
        return testkit::skip("a small file system needs root");
    }
    let mount = |args: &[&str]| {
        let status = Command::new("mount")
            .args(args)
            .arg(place.to.path())
            .status();
        status.is_ok_and(|status| status.success())
    };
    let is_private = Command::new("mount")
        .args(["--make-rprivate", "/"])
        .status();
    if !is_private.is_ok_and(|status| status.success())
        || !mount(&["-t", "tmpfs", "-o", "size=64k", "none"])
    {
        return testkit::skip("no tmpfs can be mounted");
    }
    let text = "0123456789abcde\n".repeat(16 << 10);
    let big = place.file("big.log", &text);
    let small = place.file("small.log", "x\n");
    let report = place.archive(Duration::ZERO).run(&[big.clone(), small]);
    assert_eq!(
        report.files[0].error.as_ref().unwrap().kind,
        ArchiveTrouble::NoRoom
    );
    assert_eq!(report.files[0].outcome, ArchiveOutcome::Kept);
    assert_eq!(fs::read_to_string(&big).unwrap(), text);
    assert_eq!(report.files[1].outcome, ArchiveOutcome::Archived);
    assert_eq!(listed(place.to.path()), ["small.log"]);
    place.assert_tidy();
}

const LOCKS: [(&str, &str); 3] = [
    ("flock", "fcntl.flock(f, fcntl.LOCK_EX)"),
    ("posix", "fcntl.lockf(f, fcntl.LOCK_EX)"),
    ("ofd", "fcntl.fcntl(f,37,struct.pack('hhqqi4x',1,0,0,0,0))"),
];

#[test]
fn r50_a_file_under_a_lock_is_not_moved_and_the_others_go_on() {
    for (name, call) in LOCKS {
        let place = Place::same();
        let locked = place.file(&format!("{name}.log"), "x\n");
        let good = place.file("good.log", "y\n");
        let script = format!(
            "import fcntl,struct,sys\nf=open(sys.argv[1],'r+')\n{call}\nprint('ready',flush=True)\nsys.stdin.read()"
        );
        let holder = ScriptedProcess::python(&script, &locked);
        let report = place
            .archive(Duration::from_millis(60))
            .run(&[locked.clone(), good]);
        assert!(!report.success);
        let receipt = &report.files[0];
        let error = receipt.error.as_ref().unwrap();
        assert_eq!(
            (error.kind, receipt.outcome),
            (ArchiveTrouble::Locked, ArchiveOutcome::Kept)
        );
        let named = format!("python3 (pid {}, descriptor ", holder.id());
        assert!(error.message.contains(&named), "{}", error.message);
        assert_eq!(receipt.locks[0].pid, holder.id());
        assert!(locked.exists());
        assert_eq!(report.files[1].outcome, ArchiveOutcome::Archived);
        drop(holder);
        assert_eq!(place.once(&locked).outcome, ArchiveOutcome::Archived);
        place.assert_tidy();
    }
}

#[test]
fn r50_a_lock_of_one_who_only_reads_counts_as_well() {
    let place = Place::same();
    let path = place.file("a.log", "x\n");
    let script = "import fcntl,sys\nf=open(sys.argv[1])\nfcntl.flock(f, fcntl.LOCK_SH)\nprint('ready',flush=True)\nsys.stdin.read()";
    let holder = ScriptedProcess::python(script, &path);
    assert_eq!(
        place.once(&path).error.unwrap().kind,
        ArchiveTrouble::Locked
    );
    drop(holder);
    assert_eq!(place.once(&path).outcome, ArchiveOutcome::Archived);
}
