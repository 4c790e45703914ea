//! The keeper itself: what it holds, what it survives, and what notices it.

use std::fs;
use std::process::Command;

use fdguard_proc::ProcKey;
use fdguard_process::plan::SessionKind;
use fdguard_process::tree::{Exit, Tree};
use rustix::process::{Pid, Signal, WaitOptions, getpgid, getpgrp};

use super::harness::{AT_ONCE, empty, plan, shell, status};

#[test]
fn a_keeper_survives_what_a_terminal_or_supervisor_sends_to_groups() {
    for group in [SessionKind::Session, SessionKind::Own, SessionKind::Same] {
        let mut plan = plan(&["sleep", "1000"]);
        plan.group = group;
        let mut tree = Tree::start(&plan).unwrap();
        let keeper = ProcKey::read(tree.keeper()).unwrap();
        let pid = Pid::from_raw(i32::try_from(tree.keeper()).unwrap());
        assert_ne!(getpgid(pid).unwrap(), getpgrp(), "not in our group");
        for signal in [
            Signal::HUP,
            Signal::INT,
            Signal::QUIT,
            Signal::TERM,
            Signal::TSTP,
        ] {
            keeper.signal(signal).unwrap();
        }
        tree.stop(AT_ONCE);
        assert_eq!(empty(&mut tree), (Exit::Signal(libc::SIGKILL), 1));
    }
}

#[test]
fn a_keeper_holds_nothing_of_the_owners_and_has_a_name() {
    let careless = rustix::io::dup(rustix::stdio::stdin()).unwrap();
    let tree = Tree::start(&plan(&["sleep", "1000"])).unwrap();
    let keeper = tree.keeper();
    assert_eq!(status(keeper, "Name").as_deref(), Some("fdguard-keeper"));
    // Its end of the pair, the owner's pidfd, the signals.
    let held = fs::read_dir(format!("/proc/{keeper}/fd")).unwrap().count();
    assert_eq!(held, 3);
    assert_eq!(
        fs::read_link(format!("/proc/{keeper}/cwd"))
            .unwrap()
            .to_str(),
        Some("/")
    );
    drop((tree, careless));
}

#[test]
fn the_owners_own_children_are_not_reaped_and_keepers_are_not_seen() {
    let mut child = Command::new("sh").args(["-c", "exit 5"]).spawn().unwrap();
    for _ in 0..20 {
        drop(Tree::start(&plan(&["true"])).unwrap());
    }
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let mut tree = Tree::start(&shell("exit 3")).unwrap();
    // An owner that waits for any child sees none: it does not consume the keeper's end.
    let waited = rustix::process::wait(WaitOptions::NOHANG);
    assert_eq!(waited.unwrap_err(), rustix::io::Errno::CHILD);
    assert_eq!(empty(&mut tree), (Exit::Code(3), 0));
    let waited = rustix::process::wait(WaitOptions::NOHANG);
    assert_eq!(waited.unwrap_err(), rustix::io::Errno::CHILD);
}
