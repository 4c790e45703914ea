//! Trees in a cgroup of their own, where one can be created.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fdguard_proc::ProcKey;
use fdguard_process::tree::{Mechanism, Tree, TreeEvent};
use rustix::process::Signal;

use super::harness::{AT_ONCE, alive, empty, family, heard, line, plan, token, told};

fn cgroup(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("0::"));
    own.unwrap().to_owned()
}

/// A tree in a cgroup, or `None` if none can be created.
fn tree(token: &str) -> Option<Tree> {
    let (mut plan, mut out) = heard(family(token, &[]));
    plan.cgroup = true;
    let tree = Tree::start(&plan).unwrap();
    assert_eq!(line(&mut out), "up");
    if tree.mechanism() == Mechanism::Keeper {
        testkit::skip("no cgroup of version 2 can be made here");
        return None;
    }
    Some(tree)
}

fn dir(tree: &Tree) -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (dir, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| dir.to_owned())
    });
    PathBuf::from(mount.unwrap() + &cgroup(tree.main()))
}

#[test]
fn the_whole_tree_is_in_it_and_the_keeper_is_not() {
    let token = token();
    let Some(mut tree) = tree(&token) else {
        return;
    };
    let inside = cgroup(tree.main());
    assert!(inside.contains("/fdguard-"), "{inside}");
    assert_eq!(cgroup(tree.keeper()), cgroup(std::process::id()));
    let dir = dir(&tree);
    assert!(dir.is_dir());
    tree.stop(AT_ONCE);
    empty(&mut tree);
    assert!(!dir.exists(), "it is removed");
    assert_eq!(alive(&token), [0; 0]);
}

#[test]
fn a_lost_keeper_leaves_nothing_in_a_cgroup() {
    let token = token();
    let Some(mut tree) = tree(&token) else {
        return;
    };
    let dir = dir(&tree);
    let keeper = ProcKey::read(tree.keeper()).unwrap();
    keeper.signal(Signal::KILL).unwrap();
    assert_eq!(told(&mut tree), TreeEvent::Lost);
    assert_eq!(
        alive(&token),
        [0; 0],
        "also the hopper, whom nobody can name"
    );
    assert!(!dir.exists());
}

#[test]
fn a_start_that_fails_leaves_no_cgroup() {
    let before = leaves();
    let mut plan = plan(&["fdguard-no-such-program"]);
    plan.cgroup = true;
    for _ in 0..100 {
        Tree::start(&plan).unwrap_err();
    }
    assert_eq!(leaves(), before);
}

#[test]
fn an_empty_cgroup_of_an_owner_that_was_killed_with_its_keeper_is_removed() {
    let token = token();
    let Some(tree) = tree(&token) else {
        return;
    };
    let parent = dir(&tree).parent().unwrap().to_owned();
    drop(tree);
    // No process has this pid: the kernel's highest is 4194304.
    let left = parent.join("fdguard-4194305-1-0");
    fs::create_dir(&left).unwrap();
    let exe = std::env::current_exe().unwrap();
    let test = "suite::cgroup::the_whole_tree_is_in_it_and_the_keeper_is_not";
    let another = Command::new(exe).args(["--exact", test]).output().unwrap();
    assert!(another.status.success());
    assert!(!left.exists());
}

/// Cgroups that this process created.
fn leaves() -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let own = cgroup(std::process::id());
    let prefix = format!("fdguard-{}-", std::process::id());
    let dirs = mounts.lines().filter(|line| line.contains(" cgroup2 "));
    let dirs = dirs.filter_map(|line| line.split(' ').nth(1));
    let entries = dirs.flat_map(|dir| fs::read_dir(dir.to_owned() + &own).into_iter().flatten());
    let ours = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    ours.count()
}
