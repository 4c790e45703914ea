//! Plans for tests, and waiting for a tree's events.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fdguard_process::plan::Plan;
use fdguard_process::tree::{Exit, StopPlan, Tree, TreeEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Nothing that a test waits for takes this long, even on the busiest machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// KILL at once.
pub(crate) const AT_ONCE: StopPlan = StopPlan {
    signal: libc::SIGTERM,
    grace: Duration::ZERO,
};

/// A plan for this command with a small environment.
pub(crate) fn plan(command: &[&str]) -> Plan {
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    let command = command.iter().map(OsString::from).collect();
    Plan::new(command, vec![("PATH".into(), path)])
}

/// A plan for a line of shell.
pub(crate) fn shell(script: &str) -> Plan {
    plan(&["sh", "-c", script])
}

/// Makes the program's standard output readable from a pipe.
pub(crate) fn heard(mut plan: Plan) -> (Plan, fs::File) {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    plan.stdio[1] = Some(Arc::new(theirs));
    (plan, fs::File::from(ours))
}

/// Starts it, and returns its output until everything had ended.
pub(crate) fn output(plan: Plan) -> (String, Exit) {
    let (plan, mut out) = heard(plan);
    let mut tree = Tree::start(&plan).expect("a start");
    drop(plan);
    let mut text = String::new();
    out.read_to_string(&mut text).expect("text");
    let (exit, _) = empty(&mut tree);
    (text, exit)
}

/// Waits until this can be read.
pub(crate) fn wait_for(fd: std::os::fd::BorrowedFd<'_>) {
    let deadline = Instant::now() + LONG;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).expect("a time");
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => panic!("nothing was told in {LONG:?}"),
            Ok(_) => return,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The next event.
pub(crate) fn told(tree: &mut Tree) -> TreeEvent {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(told) = tree.told() {
            return told;
        }
        assert!(Instant::now() < deadline, "nothing was told in {LONG:?}");
        tree.wait(deadline);
    }
}

/// Waits for `Empty`, and returns the program's exit and the number of processes killed.
pub(crate) fn empty(tree: &mut Tree) -> (Exit, u32) {
    loop {
        match told(tree) {
            TreeEvent::Empty { exit, killed, .. } => return (exit, killed),
            TreeEvent::Lost => panic!("the keeper is gone"),
            _ => {}
        }
    }
}

/// Waits for the next line from the program.
pub(crate) fn line(out: &mut fs::File) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while out.read(&mut byte).expect("a byte") == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}

/// The living processes with this token in their command line.
pub(crate) fn alive(token: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = command.split(|byte| *byte == 0);
        // An ended process has no command line.
        if pid != std::process::id() && words.any(|word| word == token.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// A word that no other process has in its command line.
pub(crate) fn token() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let pid = std::process::id();
    format!("family-{pid}-{count}")
}

/// A plan for the tree that is hard to end.
pub(crate) fn family(token: &str, words: &[&str]) -> Plan {
    let program = testkit::c_victim("family");
    let program = program.to_str().expect("a path that is text");
    plan(&[&[program, token], words].concat())
}

/// A pidfd of a process, to wait for its end.
pub(crate) fn pidfd(pid: u32) -> OwnedFd {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pidfd_open(pid.expect("a number"), PidfdFlags::empty()).expect("a process")
}

/// A field of `/proc/PID/status`.
pub(crate) fn status(pid: u32, field: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Uses up every number that is left.
pub(crate) fn fill() -> Vec<OwnedFd> {
    let mut taken = Vec::new();
    loop {
        match rustix::io::dup(rustix::stdio::stdin()) {
            Ok(fd) => taken.push(fd),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::MFILE);
                return taken;
            }
        }
    }
}
