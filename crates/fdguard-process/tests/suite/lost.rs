//! A keeper that somebody killed.

use fdguard_process::adopt::{adopt_orphans, end_adopted};
use fdguard_process::identity::{Identity, signal_checked};
use fdguard_process::tree::{Told, Tree};

use super::harness::{LONG, alive, family, heard, line, pidfd, token, told, wait_for};

fn kill_keeper(tree: &Tree) {
    let keeper = Identity::of(tree.keeper()).unwrap();
    signal_checked(&keeper, libc::SIGKILL).unwrap();
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
    assert_eq!(told(&mut tree), Told::Lost);
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
    assert_eq!(told(&mut tree), Told::Lost);
    // Nobody was seen before, and a hopper is never the one that was seen.
    let swept = end_adopted(&[other.keeper()], LONG);
    assert_eq!(swept.left, 0);
    assert!(swept.ended > 0, "{swept:?}");
    assert_eq!(alive(&token), [0; 0]);
    assert_eq!(other.members(), [other.main()], "another tree lives on");
}
