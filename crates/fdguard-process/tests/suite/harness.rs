//! Plans for tests, and waiting for what a tree tells.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_process::plan::{Group, Plan};
use fdguard_process::tree::{Exit, Stop, Told, Tree};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// Nothing that a test waits for takes this long, on the busiest machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// KILL at once.
pub(crate) const AT_ONCE: Stop = Stop {
    signal: libc::SIGTERM,
    grace: Duration::ZERO,
};

/// A plan for this command with a small environment.
pub(crate) fn plan(command: &[&str]) -> Plan {
    let path: OsString = std::env::var_os("PATH").unwrap_or_default();
    Plan {
        command: command.iter().map(OsString::from).collect(),
        environment: vec![("PATH".into(), path)],
        folder: None,
        stdio: [None, None, None],
        handed: Vec::new(),
        soft_limit: None,
        group: Group::Session,
        cgroup: false,
    }
}

/// A plan for a line of shell.
pub(crate) fn shell(script: &str) -> Plan {
    plan(&["sh", "-c", script])
}

/// Lets the program's standard output be read from the pipe.
pub(crate) fn heard(mut plan: Plan) -> (Plan, fs::File) {
    let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    plan.stdio[1] = Some(Arc::new(theirs));
    (plan, fs::File::from(ours))
}

/// Starts it, and gives what it wrote until all of it had ended.
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

/// The next that is told.
pub(crate) fn told(tree: &mut Tree) -> Told {
    loop {
        if let Some(told) = tree.told() {
            return told;
        }
        wait_for(tree.fd());
    }
}

/// Waits for `Empty`, and gives the program's exit and who was killed.
pub(crate) fn empty(tree: &mut Tree) -> (Exit, u32) {
    loop {
        match told(tree) {
            Told::Empty { exit, killed, .. } => return (exit, killed),
            Told::Lost => panic!("the keeper is gone"),
            _ => {}
        }
    }
}

/// Waits for this line from the program.
pub(crate) fn line(out: &mut fs::File) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while out.read(&mut byte).expect("a byte") == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("text")
}
