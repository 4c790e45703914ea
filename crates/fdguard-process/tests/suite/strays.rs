//! A keeper that was killed.

use fdguard_proc::ProcKey;
use fdguard_process::adopt::{adopt_orphans, adopt_orphans_of_trees, end_adopted};
use fdguard_process::tree::{Tree, TreeEvent};
use rustix::process::Signal;

use super::harness::{LONG, alive, family, heard, line, pidfd, token, told, wait_for};

fn kill_keeper(tree: &Tree) {
    let keeper = ProcKey::read(tree.keeper()).unwrap();
    keeper.signal(Signal::KILL).unwrap();
}

#[test]
fn those_that_were_seen_are_killed_when_the_keeper_is_lost() {
    let token = token();
    let (plan, mut out) = heard(family(&token, &["still"]));
    let mut tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    let members: Vec<_> = tree.members().into_iter().map(pidfd).collect();
    assert_eq!(members.len(), 6);
    kill_keeper(&tree);
    assert_eq!(told(&mut tree), TreeEvent::Lost);
    for member in &members {
        wait_for(std::os::fd::AsFd::as_fd(member));
    }
    assert_eq!(alive(&token), [0; 0]);
    assert_eq!(tree.told(), None);
    assert_eq!(tree.members(), [0; 0]);
}

#[test]
fn an_owner_that_adopts_orphans_ends_all_of_them() {
    adopt_orphans().unwrap();
    let token = token();
    let (plan, mut out) = heard(family(&token, &[]));
    let mut tree = Tree::start(&plan).unwrap();
    let other = Tree::start(&super::harness::plan(&["sleep", "1000"])).unwrap();
    assert_eq!(line(&mut out), "up");
    kill_keeper(&tree);
    assert_eq!(told(&mut tree), TreeEvent::Lost);
    // None was seen before, and a hopper is never the process that was seen.
    let swept = end_adopted(&[other.keeper()], LONG);
    assert_eq!(swept.left, 0);
    assert!(swept.ended > 0, "{swept:?}");
    assert_eq!(alive(&token), [0; 0]);
    assert_eq!(other.members(), [other.main()], "another tree lives on");
}

#[test]
fn a_tree_whose_keeper_was_killed_ends_with_those_that_nobody_saw() {
    let mut before = std::process::Command::new("sleep")
        .arg("1000")
        .spawn()
        .unwrap();
    adopt_orphans_of_trees().unwrap();
    let token = token();
    let (plan, mut out) = heard(family(&token, &[]));
    let mut tree = Tree::start(&plan).unwrap();
    let other = Tree::start(&super::harness::plan(&["sleep", "1000"])).unwrap();
    assert_eq!(line(&mut out), "up");
    kill_keeper(&tree);
    assert_eq!(told(&mut tree), TreeEvent::Lost);
    assert_eq!(tree.orphans_left(), Some(0));
    assert_eq!(alive(&token), [0; 0]);
    assert_eq!(other.members(), [other.main()], "another tree lives on");
    assert!(
        before.try_wait().unwrap().is_none(),
        "a child that was there before lives on"
    );
    before.kill().unwrap();
    before.wait().unwrap();
}

#[test]
fn a_keeper_that_its_own_tree_has_stopped_ends_it_all_the_same() {
    // Not before the start is over: until then it would be continued.
    let dir = tempfile::tempdir().unwrap();
    let now = dir.path().join("now");
    let script = format!(
        "setsid sleep 1000 & until [ -e {} ]; do sleep 0.01; done; kill -STOP $PPID; sleep 1000",
        now.display()
    );
    let mut tree = Tree::start(&super::harness::shell(&script)).unwrap();
    std::fs::write(now, "").unwrap();
    let keeper = tree.keeper();
    let is_stopped =
        || super::harness::status(keeper, "State").is_some_and(|state| state.starts_with('T'));
    let deadline = std::time::Instant::now() + LONG;
    while !is_stopped() {
        assert!(std::time::Instant::now() < deadline, "it is not stopped");
        std::thread::yield_now();
    }
    tree.stop(super::harness::AT_ONCE);
    let (exit, killed) = super::harness::empty(&mut tree);
    assert_eq!(exit, fdguard_process::tree::Exit::Signal(libc::SIGKILL));
    assert!(killed >= 2, "{killed}");
}

/// Regression: the start hung, because the keeper was stopped before it could report that the
/// program runs. As jobs on one core, the program comes first.
#[test]
fn a_program_that_stops_its_keeper_at_once_is_started_all_the_same() {
    const NAME: &str =
        "suite::strays::a_program_that_stops_its_keeper_at_once_is_started_all_the_same";
    if std::env::var_os("FDGUARD_TEST_ROLE").is_none() {
        if !["chrt", "taskset"].into_iter().all(testkit::have) {
            return testkit::skip("needs chrt and taskset");
        }
        let exe = std::env::current_exe().unwrap();
        let mut again = std::process::Command::new("chrt");
        again.args(["--batch", "0", "taskset", "-c", "0"]).arg(exe);
        again
            .args(["--exact", NAME])
            .env("FDGUARD_TEST_ROLE", "job");
        let said = again.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        return;
    }
    for _ in 0..10 {
        let plan = super::harness::shell("kill -STOP $PPID; sleep 1000");
        let mut tree = Tree::start(&plan).unwrap();
        tree.stop(super::harness::AT_ONCE);
        // It may be stopped after the request, too.
        super::harness::empty(&mut tree);
    }
}
