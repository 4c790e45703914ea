//! The tree that is hard to end: nothing of it is left, ever.

use std::time::{Duration, Instant};

use fdguard_process::tree::{Exit, StopPlan, Tree, TreeEvent};

use super::harness::{AT_ONCE, alive, empty, family, heard, line, token, told};

const TERM: StopPlan = StopPlan {
    signal: libc::SIGTERM,
    grace: Duration::from_millis(50),
};

/// One run: start, members, end. Returns how long the end took.
fn one_life(words: &[&str], cgroup: bool, stop: StopPlan) -> Duration {
    let token = token();
    let (mut plan, mut out) = heard(family(&token, words));
    plan.cgroup = cgroup;
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let before = Instant::now();
    tree.stop(stop);
    let (_, killed) = empty(&mut tree);
    let took = before.elapsed();
    assert_eq!(alive(&token), [0; 0], "survivors");
    assert!(killed > 0, "some of them do not end when asked");
    took
}

#[test]
fn a_hard_tree_has_no_survivors_in_100_of_100_runs() {
    for _ in 0..100 {
        let took = one_life(&[], false, AT_ONCE);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_hard_tree_that_is_asked_first_has_no_survivors() {
    for _ in 0..10 {
        let took = one_life(&[], false, TERM);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn a_hard_tree_in_a_cgroup_has_no_survivors() {
    for stop in [AT_ONCE, TERM] {
        for _ in 0..10 {
            one_life(&[], true, stop);
        }
    }
}

#[test]
fn a_hopper_that_does_not_pause_is_caught() {
    for _ in 0..10 {
        let took = one_life(&["fast"], false, AT_ONCE);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn members_are_those_that_live_the_program_first() {
    let token = token();
    let (plan, mut out) = heard(family(&token, &["still"]));
    let tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let members = tree.members();
    assert_eq!(members.first(), Some(&tree.main()));
    let (mut members, mut oracle) = (members, alive(&token));
    members.sort_unstable();
    oracle.sort_unstable();
    assert_eq!(members, oracle);
    assert_eq!(members.len(), 6);
    drop(tree);
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn a_program_that_leaves_descendants_is_told_and_they_live_on() {
    let token = token();
    let (plan, mut out) = heard(family(&token, &["still", "leave"]));
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let exit = Exit::Code(0);
    assert_eq!(told(&mut tree), TreeEvent::MainEnded { exit, left: 5 });
    let members = tree.members();
    assert_eq!(members.len(), 5, "the owner decides: nobody was ended");
    assert!(!members.contains(&tree.main()));
    assert_eq!(tree.told(), None);
    tree.stop(TERM);
    let TreeEvent::Empty {
        exit,
        killed,
        reaped,
    } = told(&mut tree)
    else {
        panic!("nothing follows but the end");
    };
    assert_eq!((exit, reaped), (Exit::Code(0), 5));
    // The one that ignores TERM. The stopped one was signalled too, and continued.
    assert_eq!(killed, 1);
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn a_stopped_program_is_continued_to_hear_its_signal() {
    let script = "trap 'exit 9' TERM; kill -STOP $$; while :; do sleep 0.01; done";
    let mut tree = Tree::start(&super::harness::shell(script)).unwrap();
    let deadline = Instant::now() + super::harness::LONG;
    while !super::harness::status(tree.main(), "State").is_some_and(|state| state.starts_with('T'))
    {
        assert!(Instant::now() < deadline, "it does not stop");
        std::thread::yield_now();
    }
    let (signal, grace) = (libc::SIGTERM, Duration::from_secs(50));
    tree.stop(StopPlan { signal, grace });
    assert_eq!(empty(&mut tree), (Exit::Code(9), 0));
}
