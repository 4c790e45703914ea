//! Trees that cost their owner one descriptor, and signals through the keeper.

use std::fs;
use std::os::fd::AsFd as _;

use fdguard_proc::ProcKey;
use fdguard_process::plan::Plan;
use fdguard_process::reserve::Reserve;
use fdguard_process::tree::{Exit, Options, Tree, TreeEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::harness::{AT_ONCE, alive, empty, family, heard, line, pidfd, plan, shell, token, told};
use super::harness::{fill, wait_for};

fn lean(plan: &Plan) -> Tree {
    let options = Options {
        keep_pidfd: false,
        ..Options::default()
    };
    Tree::start_with(plan, options).unwrap()
}

fn held() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_tree_costs_one_descriptor_where_its_owner_asks_for_it() {
    let before = held();
    let mut trees: Vec<_> = (0..10).map(|_| lean(&plan(&["sleep", "1000"]))).collect();
    assert_eq!(held(), before + 10);
    assert!(trees.iter().all(|tree| tree.pidfd().is_none()));
    for tree in &mut trees {
        tree.stop(AT_ONCE);
        assert_eq!(empty(tree), (Exit::Signal(libc::SIGKILL), 1));
    }
    drop(trees);
    assert_eq!(held(), before);
}

#[test]
fn a_lean_start_needs_two_numbers_held_back_and_keeps_one() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(64);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
    let wanted = Reserve::FOR_A_START_WITHOUT_PIDFD;
    let mut reserve = Reserve::new(wanted).unwrap();
    let taken = fill();
    let options = Options {
        reserve: Some(&mut reserve),
        keep_pidfd: false,
        ..Options::default()
    };
    let mut tree = Tree::start_with(&shell("exit 4"), options).unwrap();
    assert_eq!(reserve.held(), wanted - 1);
    assert_eq!(empty(&mut tree).0, Exit::Code(4));
    drop((tree, taken));
}

#[test]
fn signals_reach_the_program_through_its_keeper() {
    let (plan, mut out) = heard(shell(
        "trap 'echo usr1' USR1; trap 'exit 9' USR2; echo up; while :; do sleep 0.01; done",
    ));
    let mut tree = lean(&plan);
    drop(plan);
    assert_eq!(line(&mut out), "up");
    tree.signal(libc::SIGUSR1);
    assert_eq!(line(&mut out), "usr1");
    assert!(!tree.is_over());
    tree.signal(libc::SIGUSR2);
    assert_eq!(empty(&mut tree).0, Exit::Code(9));
    assert!(tree.is_over());
    // This must have no effect: the pid may belong to another process by now.
    tree.signal(libc::SIGKILL);
}

#[test]
fn a_signal_to_all_but_the_program_reaches_those_that_left_its_session() {
    let script = "trap 'echo main' USR1
        setsid sh -c 'trap \"echo far; exit 3\" USR1; echo far-up; while :; do sleep 0.01; done' &
        sh -c 'trap \"echo near; exit 3\" USR1; echo near-up; while :; do sleep 0.01; done' &
        wait; wait; echo over; while :; do sleep 0.01; done";
    let (plan, mut out) = heard(shell(script));
    let mut tree = lean(&plan);
    drop(plan);
    let mut up = [line(&mut out), line(&mut out)];
    up.sort();
    assert_eq!(up, ["far-up", "near-up"]);
    tree.signal_all(libc::SIGUSR1, true);
    let mut said = [line(&mut out), line(&mut out)];
    said.sort();
    assert_eq!(said, ["far", "near"]);
    assert_eq!(line(&mut out), "over", "the program was not interrupted");
    tree.signal_all(libc::SIGUSR1, false);
    assert_eq!(line(&mut out), "main");
    tree.stop(AT_ONCE);
    empty(&mut tree);
}

#[test]
fn a_lean_tree_that_lost_its_keeper_is_ended_by_what_is_known() {
    let token = token();
    let (plan, mut out) = heard(family(&token, &["still"]));
    let mut tree = lean(&plan);
    assert_eq!(line(&mut out), "up");
    let members: Vec<_> = tree.members().into_iter().map(pidfd).collect();
    assert_eq!(members.len(), 6);
    let keeper = ProcKey::read(tree.keeper()).unwrap();
    keeper.signal(Signal::KILL).unwrap();
    assert_eq!(told(&mut tree), TreeEvent::Lost);
    for member in &members {
        wait_for(member.as_fd());
    }
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn the_end_is_told_with_the_keepers_own_so_that_a_drop_only_reaps() {
    for _ in 0..50 {
        let mut tree = lean(&plan(&["true"]));
        empty(&mut tree);
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let mut fds = [PollFd::from_borrowed_fd(tree.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&at_once)).unwrap();
        assert!(fds[0].revents().contains(PollFlags::HUP));
    }
}
