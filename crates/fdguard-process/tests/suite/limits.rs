//! Programs that exceed their limits.

use std::time::Duration;

use fdguard_process::plan::{Plan, TreeLimits};
use fdguard_process::tree::{EnforcedLimits, Exit, LimitMechanism, Mechanism, Tree};

use super::harness::{AT_ONCE, empty, heard, output, plan, shell};

fn limited(mut plan: Plan, limits: TreeLimits) -> Plan {
    plan.limits = limits;
    plan
}

fn python(text: &str, limits: TreeLimits) -> (String, Exit) {
    output(limited(plan(&["python3", "-c", text]), limits))
}

#[test]
fn without_limits_nobody_sees_to_any() {
    let tree = Tree::start(&plan(&["sleep", "1000"])).unwrap();
    assert_eq!(tree.enforced(), EnforcedLimits::default());
}

#[test]
fn a_program_that_wants_more_memory_than_it_may_is_refused_it() {
    let memory = Some(64 << 20);
    let limits = TreeLimits {
        memory,
        ..TreeLimits::default()
    };
    let greedy = "
small = bytearray(16 << 20)
try:
    large = bytearray(128 << 20)
    print('got it')
except MemoryError:
    print('refused')";
    assert_eq!(
        python(greedy, limits),
        ("refused\n".to_owned(), Exit::Code(0))
    );
    let unlimited = python(greedy, TreeLimits::default());
    assert_eq!(unlimited, ("got it\n".to_owned(), Exit::Code(0)));
}

#[test]
fn a_program_that_reserves_addresses_and_does_not_use_them_runs_with_little_memory() {
    let limits = TreeLimits {
        memory: Some(64 << 20),
        ..TreeLimits::default()
    };
    let reserve = "
import mmap
addresses = mmap.mmap(-1, 8 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
print(len(addresses) >> 30)";
    assert_eq!(python(reserve, limits), ("8\n".to_owned(), Exit::Code(0)));
}

#[test]
fn a_program_that_uses_its_time_up_is_told_then_killed() {
    let limits = TreeLimits {
        cpu: Some(Duration::from_millis(300)),
        ..TreeLimits::default()
    };
    let asked = output(limited(shell("while :; do :; done"), limits));
    assert_eq!(asked.1, Exit::Signal(libc::SIGXCPU));
    let stubborn = shell("trap 'echo told' XCPU; while :; do :; done");
    let killed = output(limited(stubborn, limits));
    assert_eq!(killed, ("told\n".to_owned(), Exit::Signal(libc::SIGKILL)));
}

#[test]
fn descriptors_are_limited_soft_and_hard() {
    let limits = TreeLimits {
        descriptors: Some(32),
        ..TreeLimits::default()
    };
    let greedy = "
import os, resource
print(resource.getrlimit(resource.RLIMIT_NOFILE))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError as error:
    print(error.errno, 3 + len(held))";
    let mut plan = plan(&["python3", "-c", greedy]);
    let expected = format!("(32, 32)\n{} 32\n", libc::EMFILE);
    assert_eq!(output(limited(plan.clone(), limits)).0, expected);
    // A plan's soft limit is kept if it is lower.
    plan.soft_limit = Some(16);
    let text = output(limited(plan, limits)).0;
    assert!(text.starts_with("(16, 32)\n"), "{text}");
}

#[test]
fn limits_hold_for_descendants_too() {
    let limits = TreeLimits {
        descriptors: Some(33),
        ..TreeLimits::default()
    };
    let script = "setsid sh -c 'sh -c \"ulimit -Hn\"' & wait";
    assert_eq!(output(limited(shell(script), limits)).0, "33\n");
}

#[test]
fn processes_are_limited_by_a_cgroup_or_it_is_said_that_nobody_does_it() {
    let limits = TreeLimits {
        processes: Some(8),
        memory: Some(256 << 20),
        ..TreeLimits::default()
    };
    let script = "i=0; while [ $i -lt 20 ]; do sleep 1000 & i=$((i+1)); done; echo done; wait";
    let (mut plan, mut out) = heard(limited(shell(script), limits));
    plan.cgroup = true;
    let mut tree = Tree::start(&plan).unwrap();
    drop(plan);
    let enforced = tree.enforced();
    if enforced.processes == LimitMechanism::Cgroup {
        assert_eq!(tree.mechanism(), Mechanism::KeeperAndCgroup);
        assert_eq!(enforced.memory, LimitMechanism::Cgroup);
        // The shell cannot fork any more, and its exit shows that; the processes that it started
        // hold its output.
        let ended = super::harness::told(&mut tree);
        assert!(
            matches!(
                ended,
                fdguard_process::tree::TreeEvent::MainEnded {
                    exit: Exit::Code(2),
                    ..
                }
            ),
            "{ended:?}"
        );
    } else {
        testkit::skip("no cgroup with the controllers of memory and processes can be made here");
        assert_eq!(enforced.processes, LimitMechanism::Nobody);
        assert_eq!(enforced.memory, LimitMechanism::Rlimit);
        assert_eq!(super::harness::line(&mut out), "done");
    }
    tree.stop(AT_ONCE);
    empty(&mut tree);
}
