//! Keepers that are stopped or traced by another process.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use fdguard_process::plan::Plan;
use fdguard_process::sweep::{count_trees_of, end_kept_by, end_trees_of};
use fdguard_process::tree::{Exit, Options, StopPlan, Tree, TreeEvent};
use rustix::pipe::{PipeFlags, pipe_with};

use super::harness::{AT_ONCE, LONG, alive, heard, line, pidfd, plan, token, told, wait_for};

/// TERM, and KILL soon.
const GENTLY: StopPlan = StopPlan {
    signal: libc::SIGTERM,
    grace: Duration::from_millis(50),
};
/// Seven seconds, on the busiest machine.
const IN_TIME: Duration = Duration::from_secs(20);
const ROLE: &str = "FDGUARD_TEST_HELD";

/// A program that holds a keeper as soon as the test lets it start.
struct Holder {
    plan: Plan,
    out: fs::File,
    begin: fs::File,
}

fn holder(token: &str, how: &str, pid: u32) -> Holder {
    let program = testkit::c_victim("hold_keeper");
    let pid = pid.to_string();
    let (mut plan, out) = heard(plan(&[program.to_str().unwrap(), token, how, &pid]));
    let (theirs, begin) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    plan.stdio[0] = Some(Arc::new(theirs));
    Holder {
        plan,
        out,
        begin: fs::File::from(begin),
    }
}

/// Starts a program that holds its own keeper, and waits until it does. `None` if tracing is not
/// permitted.
fn held(token: &str, how: &str, options: Options<'_>) -> Option<Tree> {
    let mut holder = holder(token, how, 0);
    let tree = Tree::start_with(&holder.plan, options).unwrap();
    holder.begin.write_all(b"\n").unwrap();
    let said = line(&mut holder.out);
    if said != "held" {
        testkit::skip(&said);
        return None;
    }
    Some(tree)
}

/// Waits until the tree is over, and returns how many processes may be left.
fn over(tree: &mut Tree) -> Option<u32> {
    loop {
        match told(tree) {
            TreeEvent::Empty { .. } => return Some(0),
            TreeEvent::Lost => return tree.orphans_left(),
            _ => {}
        }
    }
}

fn options(keep_pidfd: bool) -> Options<'static> {
    Options {
        keep_pidfd,
        ..Options::default()
    }
}

#[test]
fn a_tree_that_stops_its_keeper_again_and_again_ends_in_time() {
    for (stop, keep_pidfd) in [(GENTLY, true), (AT_ONCE, true), (GENTLY, false)] {
        let token = token();
        let mut tree = held(&token, "stop", options(keep_pidfd)).unwrap();
        assert_eq!(alive(&token).len(), 2);
        let asked = Instant::now();
        tree.stop(stop);
        assert_eq!(over(&mut tree), Some(0));
        assert!(asked.elapsed() < IN_TIME, "{:?}", asked.elapsed());
        assert_eq!(alive(&token), [0; 0]);
    }
}

/// It continues the keeper until that has read the request.
#[test]
fn a_signal_passes_a_keeper_that_is_stopped_again_and_again() {
    let token = token();
    let mut tree = held(&token, "stop", options(false)).unwrap();
    tree.signal(libc::SIGKILL);
    let exit = Exit::Signal(libc::SIGKILL);
    assert_eq!(told(&mut tree), TreeEvent::MainEnded { exit, left: 1 });
}

#[test]
fn a_tree_that_traces_its_keeper_ends_in_time() {
    let token = token();
    let Some(mut tree) = held(&token, "trace", Options::default()) else {
        return;
    };
    tree.stop(AT_ONCE);
    assert_eq!(over(&mut tree), Some(0));
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn a_dropped_tree_that_holds_its_keeper_is_gone_when_the_drop_returns() {
    for how in ["once", "stop", "trace"] {
        let token = token();
        let tree = held(&token, how, Options::default());
        let dropped = Instant::now();
        drop(tree);
        assert!(dropped.elapsed() < IN_TIME, "{:?}", dropped.elapsed());
        assert_eq!(alive(&token), [0; 0], "{how}");
    }
}

/// The process that holds it is not part of the tree, and continues when the tree is gone.
#[test]
fn a_keeper_that_a_stranger_holds_does_not_keep_its_tree_alive() {
    for how in ["stop", "trace"] {
        let token = token();
        let mut tree = Tree::start(&plan(&["sleep", "1000"])).unwrap();
        let sleeper = pidfd(tree.main());
        let mut stranger = holder(&token, how, tree.keeper());
        let kept = Tree::start(&stranger.plan).unwrap();
        stranger.begin.write_all(b"\n").unwrap();
        let said = line(&mut stranger.out);
        if said != "held" {
            return testkit::skip(&said);
        }
        tree.stop(AT_ONCE);
        // Between two stops the keeper may find the time for its last message; a traced one does
        // not.
        assert_eq!(over(&mut tree), Some(0), "{how}");
        wait_for(sleeper.as_fd());
        drop((tree, kept));
    }
}

#[test]
fn a_stopped_keeper_does_not_hide_the_end_of_the_program() {
    for keep_pidfd in [true, false] {
        let token = token();
        let mut tree = held(&token, "end", options(keep_pidfd)).unwrap();
        let exit = Exit::Code(3);
        assert_eq!(told(&mut tree), TreeEvent::MainEnded { exit, left: 1 });
        tree.stop(AT_ONCE);
        assert_eq!(over(&mut tree), Some(0));
        assert_eq!(alive(&token), [0; 0]);
    }
}

#[test]
fn a_program_that_holds_its_keeper_from_the_start_leaves_nothing() {
    let token = token();
    for _ in 0..5 {
        let mut holder = holder(&token, "stop", 0);
        // It starts before the keeper has reported that it runs.
        holder.begin.write_all(b"\n").unwrap();
        // Started or not: it depends on which was faster.
        drop(Tree::start(&holder.plan));
        assert_eq!(alive(&token), [0; 0]);
    }
}

/// Not a test: an owner in a process of its own.
#[test]
#[ignore = "a role that other tests start"]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        testkit::skip("no role was given");
        return;
    };
    let (how, token) = role.split_once(' ').unwrap();
    let options = Options {
        orphan_grace: Duration::from_millis(50),
        ..Options::default()
    };
    let tree = held(token, how, options).unwrap();
    println!("owns {}", tree.keeper());
    // Until the test kills this process.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Starts such an owner; returns it, its identity, and its keeper's.
fn owner(how: &str, token: &str) -> (Child, ProcKey, ProcKey) {
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "suite::held_keeper::role",
            "--nocapture",
        ])
        .env(ROLE, format!("{how} {token}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.as_mut().unwrap()).lines();
    let keeper = lines.find_map(|line| {
        let line = line.unwrap();
        Some(line.split_once("owns ")?.1.parse::<u32>().unwrap())
    });
    let keeper = ProcKey::read(keeper.unwrap()).unwrap();
    let identity = ProcKey::read(owner.id()).unwrap();
    (owner, identity, keeper)
}

/// Regression: the tree stayed alive, because nothing continued its keeper.
#[test]
fn a_keeper_that_is_stopped_when_its_owner_is_killed_ends_its_tree() {
    for _ in 0..5 {
        let token = token();
        let (mut owner, _, keeper) = owner("once", &token);
        let keeper = pidfd(keeper.pid);
        owner.kill().unwrap();
        owner.wait().unwrap();
        wait_for(keeper.as_fd());
        assert_eq!(alive(&token), [0; 0]);
    }
}

#[test]
fn what_a_held_keeper_keeps_can_be_ended_by_who_knows_it() {
    let token = token();
    let (mut owner, _, keeper) = owner("stop", &token);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let ended = end_kept_by(keeper, LONG);
    assert_eq!(ended.left, 0, "{ended:?}");
    assert_eq!(alive(&token), [0; 0]);
    assert!(!is_alive(&keeper), "the keeper too");
}

#[test]
fn trees_of_an_owner_that_is_gone_are_found_by_their_mark() {
    let token = token();
    let other = Tree::start(&plan(&["sleep", "1000"])).unwrap();
    let (mut owner, gone, keeper) = owner("stop", &token);
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert_eq!(count_trees_of(gone), 2);
    let ended = end_trees_of(gone, LONG);
    assert_eq!((ended.killed, ended.left), (2, 0));
    assert_eq!(alive(&token), [0; 0]);
    let deadline = Instant::now() + LONG;
    while is_alive(&keeper) {
        assert!(Instant::now() < deadline, "its keeper was let go on");
        std::thread::yield_now();
    }
    assert_eq!(other.members(), [other.main()], "another tree lives on");
}

/// Whether it is alive; another process reaps it.
fn is_alive(process: &ProcKey) -> bool {
    process.is_alive()
}
