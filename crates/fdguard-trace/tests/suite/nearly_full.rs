//! A nearly full file system under the files that traced processes write costs records, never the
//! program.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fdguard_trace::{Options, PreloadSource, Protection, ReportPolicy, SiteDetail, TraceSession};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// Set for the copy of a test that runs with its own `/dev/shm`.
const INSIDE: &str = "FDGUARD_TEST_OWN_SHM";

/// Many numbers, stacks and names; threads; children with and without exec.
const PROGRAM: &str = "
import os, subprocess, threading
def many():
    held = [os.open('/dev/null', os.O_RDWR) for _ in range(300)]
    for fd in held: os.close(fd)
def child():
    many()
    os._exit(0)
thread = threading.Thread(target=many)
thread.start(); thread.join()
many()
high = os.dup2(1, 900)
pid = os.fork()
if pid == 0: child()
assert os.waitpid(pid, 0)[1] == 0
assert subprocess.run(['sh', '-c', 'exec 7</dev/null; cat <&7; (exit 0)']).returncode == 0
print('whole')
";

/// Runs this test again with a small `/dev/shm` of its own; false in that copy.
fn is_outside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let mount = "mount -t tmpfs -o size=2m none /dev/shm && exec \"$@\"";
    let status = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            mount,
            "sh",
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status();
    match status {
        Ok(status) if status.success() => {}
        _ if !has_namespaces() => testkit::skip("no mount namespaces for us"),
        other => panic!("inside: {other:?}"),
    }
    true
}

fn has_namespaces() -> bool {
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "mount"])
        .args(["-t", "tmpfs", "none", "/dev/shm"])
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

/// Leaves this many bytes free.
fn leave(bytes: u64) -> Option<File> {
    let found = statvfs(Path::new("/dev/shm")).unwrap();
    let size = (found.f_bavail * found.f_bsize).checked_sub(bytes)?;
    let path = Path::new("/dev/shm/fill");
    let file = File::create(path).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, size.max(1)).unwrap();
    std::fs::remove_file(path).unwrap();
    Some(file)
}

/// From no page to as many as the first records of a program take.
const MOST_PAGES: u64 = 44;

fn runs_at_every_level(protect: Option<&Protection>) {
    let crowd = testkit::c_variant("crowd", "O1", &["-O1", "-g", "-pthread"]).unwrap();
    for pages in 0..=MOST_PAGES {
        runs(&[crowd.clone().into()], pages, protect);
    }
    // An interpreter writes names and lines as well, and takes longer.
    let python = ["python3", "-c", PROGRAM].map(OsString::from);
    for pages in (0..=MOST_PAGES).step_by(11) {
        runs(&python, pages, protect);
    }
}

fn runs(words: &[OsString], pages: u64, protect: Option<&Protection>) {
    let source = PreloadSource::prepare(words, protect.cloned()).unwrap();
    let mut variables: Vec<_> = std::env::vars_os().collect();
    source.environment(&mut variables);
    let mut session = TraceSession::start(source, &Options::default()).unwrap();
    let _fill = leave(pages * 4096).expect("room for the library");
    let mut start = Command::new(&words[0]);
    start.args(&words[1..]).env_clear().envs(variables);
    let output = start.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let outcome = (output.status.code(), output.status.signal());
    assert_eq!(outcome, (Some(0), None), "{pages} pages: {told}");
    assert_eq!(output.stdout, b"whole\n", "{pages} pages");
    // Reading what exists must not fail either.
    session.finish(SiteDetail::Held, true).unwrap();
}

/// Regression: children were killed by SIGBUS at 22 of 37 levels.
#[test]
fn a_traced_program_runs_at_every_level_of_a_small_file_system() {
    if !is_outside(
        "suite::nearly_full::a_traced_program_runs_at_every_level_of_a_small_file_system",
    ) {
        runs_at_every_level(None);
    }
}

#[test]
fn a_protected_program_runs_at_every_level_of_a_small_file_system() {
    if !is_outside(
        "suite::nearly_full::a_protected_program_runs_at_every_level_of_a_small_file_system",
    ) {
        runs_at_every_level(Some(&Protection::new(ReportPolicy::Once)));
    }
}
