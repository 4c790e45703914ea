//! The live view on a real terminal: whatever ends it, the terminal is restored.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use testkit::Victim;

const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

/// A live view on a pseudo-terminal of a given size.
pub(crate) struct Live {
    child: Child,
    master: File,
    shown: String,
}

impl Live {
    fn start(columns: u16, rows: u16) -> Self {
        Self::of(&["top", "--interval", "0.2"], columns, rows)
    }

    pub(crate) fn of(args: &[&str], columns: u16, rows: u16) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fdguard"));
        command.args(args).current_dir("/");
        Self::run(command, columns, rows)
    }

    pub(crate) fn run(mut command: Command, columns: u16, rows: u16) -> Self {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        rustix::pty::grantpt(&master).unwrap();
        rustix::pty::unlockpt(&master).unwrap();
        let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(slave.as_fd(), size).unwrap();
        let end = |slave: &OwnedFd| Stdio::from(slave.try_clone().unwrap());
        let child = command
            .env("TERM", "xterm-256color")
            .stdin(end(&slave))
            .stdout(end(&slave))
            .stderr(end(&slave))
            .spawn()
            .unwrap();
        Self {
            child,
            master: File::from(master),
            shown: String::new(),
        }
    }

    /// Reads the output until it contains a text.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut buffer = [0; 4096];
        while !self.shown.contains(text) {
            let length = self
                .master
                .read(&mut buffer)
                .expect("the view is still there");
            self.shown
                .push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.master.write_all(keys).unwrap();
    }

    /// Reads the rest: a terminal whose last holder is gone returns an error.
    pub(crate) fn end(mut self) -> (std::process::ExitStatus, String) {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = self.master.read(&mut buffer) {
            self.shown
                .push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        (self.child.wait().unwrap(), self.shown)
    }
}

#[test]
fn a_key_ends_the_view_and_the_terminal_comes_back() {
    let mut live = Live::start(100, 30);
    live.wait_for("COMMAND");
    live.master.write_all(b"q").unwrap();
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0));
    assert!(shown.contains(ENTER_SCREEN) && shown.contains(LEAVE_SCREEN));
}

#[test]
fn a_signal_ends_the_view_and_the_terminal_comes_back() {
    let mut live = Live::start(100, 30);
    live.wait_for("COMMAND");
    let pid = Pid::from_child(&live.child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let (status, shown) = live.end();
    assert_eq!(status.signal(), Some(15), "who sent it sees the truth");
    assert!(shown.contains(LEAVE_SCREEN));
}

#[test]
fn a_narrow_terminal_shows_what_fits() {
    let mut live = Live::start(40, 10);
    live.wait_for("COUNT");
    live.master.write_all(b"?").unwrap();
    live.master.write_all(b"\x1b[B\rt\x03").unwrap();
    let (status, shown) = live.end();
    assert_eq!(status.code(), Some(0));
    assert!(!shown.contains("panicked"), "{shown}");
}

#[test]
fn r13_a_watch_names_the_command_and_leaves_its_verdict_on_the_terminal() {
    for (columns, rows) in [(100, 30), (30, 8)] {
        let mut victim = Victim::start("leaker");
        victim.tell("40 file");
        let pid = victim.pid().to_string();
        let mut live = Live::of(&["watch", &pid, "--every", "10ms"], columns, rows);
        live.wait_for("leaker");
        live.master.write_all(b"q").unwrap();
        let (status, shown) = live.end();
        assert_ne!(status.code(), None, "{shown}");
        assert!(!shown.contains("panicked"), "{shown}");
        let (view, after) = shown.split_once(LEAVE_SCREEN).unwrap();
        assert!(view.contains(ENTER_SCREEN) && !view.contains("process (pid"));
        assert!(after.contains("43 descriptors"), "{after:?}");
        assert!(
            after.contains("The verdict covers the time until then."),
            "{after:?}"
        );
        victim.finish();
    }
}

#[test]
fn r11_a_signal_to_a_live_watch_leaves_the_verdict_so_far() {
    let victim = Victim::start("leaker");
    let pid = victim.pid().to_string();
    let mut live = Live::of(&["watch", &pid, "--every", "10ms"], 100, 30);
    live.wait_for("leaker");
    let pid = Pid::from_child(&live.child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let (status, shown) = live.end();
    assert!(status.code().is_some(), "by the verdict's code: {status}");
    let (_, after) = shown.split_once(LEAVE_SCREEN).unwrap();
    assert!(
        after.contains("The verdict covers the time until then."),
        "{after:?}"
    );
    victim.finish();
}
