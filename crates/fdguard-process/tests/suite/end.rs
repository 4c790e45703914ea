//! How programs end, by themselves and on request.

use std::time::{Duration, Instant};

use fdguard_process::tree::{Exit, StopPlan, Tree, TreeEvent};

use super::harness::{AT_ONCE, LONG, empty, heard, line, plan, shell, told, wait_for};

#[test]
fn exit_codes_and_signals_arrive() {
    for (script, expected) in [
        ("exit 0", Exit::Code(0)),
        ("exit 255", Exit::Code(255)),
        ("kill -SEGV $$", Exit::Signal(libc::SIGSEGV)),
        ("kill -KILL $$", Exit::Signal(libc::SIGKILL)),
    ] {
        let mut tree = Tree::start(&shell(script)).unwrap();
        let exit = expected;
        assert_eq!(told(&mut tree), TreeEvent::MainEnded { exit, left: 0 });
        let killed = 0;
        assert_eq!(
            told(&mut tree),
            TreeEvent::Empty {
                exit,
                killed,
                reaped: 0
            }
        );
        assert_eq!(tree.told(), None);
        assert!(tree.usage().is_some_and(|usage| usage.peak_memory > 0));
    }
}

#[test]
fn a_program_that_is_asked_ends() {
    let (plan, mut out) = heard(shell(
        "trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done",
    ));
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let (signal, grace) = (libc::SIGTERM, Duration::from_secs(50));
    tree.stop(StopPlan { signal, grace });
    assert_eq!(empty(&mut tree), (Exit::Code(7), 0));
}

#[test]
fn a_program_that_refuses_is_killed() {
    let (plan, mut out) = heard(shell("trap '' TERM; echo up; exec sleep 1000"));
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let (signal, grace) = (libc::SIGTERM, Duration::from_millis(50));
    tree.stop(StopPlan { signal, grace });
    assert_eq!(empty(&mut tree), (Exit::Signal(libc::SIGKILL), 1));
}

/// Requests an end that would take long if processes created during it were not signalled.
fn asked_with_newcomers(script: &str, expected: Exit) {
    let (plan, mut out) = heard(shell(script));
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let (signal, grace) = (libc::SIGTERM, LONG / 2);
    let begin = Instant::now();
    tree.stop(StopPlan { signal, grace });
    assert_eq!(empty(&mut tree), (expected, 0), "nobody was killed");
    assert!(begin.elapsed() < grace);
}

#[test]
fn a_process_that_is_born_after_the_others_were_asked_is_asked_too() {
    // The program ends at once; a process that it leaves starts one more, and waits for it. The
    // shell takes its trap back first: a child that still had it would drop the signal.
    let left =
        "(trap 'trap - TERM; sleep 1000; exit' TERM; echo up; while :; do sleep 0.01; done) & wait";
    asked_with_newcomers(left, Exit::Signal(libc::SIGTERM));
    // The program itself starts one more.
    let program =
        "trap 'trap - TERM; sleep 1000; exit 7' TERM; echo up; while :; do sleep 0.01; done";
    asked_with_newcomers(program, Exit::Code(7));
}

#[test]
fn a_shorter_grace_hurries() {
    let (plan, mut out) = heard(shell("trap '' TERM; echo up; exec sleep 1000"));
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let (signal, grace) = (libc::SIGTERM, Duration::from_secs(3600));
    tree.stop(StopPlan { signal, grace });
    assert_eq!(tree.told(), None);
    tree.stop(AT_ONCE);
    assert_eq!(empty(&mut tree), (Exit::Signal(libc::SIGKILL), 1));
}

#[test]
fn a_drop_kills_and_waits() {
    let tree = Tree::start(&plan(&["sleep", "1000"])).unwrap();
    let pidfd = tree.pidfd().unwrap().try_clone_to_owned().unwrap();
    let (main, keeper) = (tree.main(), tree.keeper());
    drop(tree);
    wait_for(std::os::fd::AsFd::as_fd(&pidfd));
    for pid in [main, keeper] {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
