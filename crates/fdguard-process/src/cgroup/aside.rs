//! Out of our own cgroup into a leaf of it, so that it may be divided: a service that is given its
//! cgroup (`Delegate=yes`) is born in the middle of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::PREFIX;
use crate::members;

/// After the prefix of all leaves; the owner's pid follows.
pub(super) const NAME: &str = "self-";

/// The cgroup that is divided: the one that we are in, or were in before we stepped aside.
pub(super) fn home(own: PathBuf) -> PathBuf {
    let is_aside = |name: &str| {
        name.strip_prefix(PREFIX)
            .is_some_and(|it| it.starts_with(NAME))
    };
    let is_aside = own
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(is_aside);
    match own.parent() {
        Some(parent) if is_aside => parent.to_owned(),
        _ => own,
    }
}

/// Moves us and everything below us into a leaf, if nobody else is in the cgroup. False when it has
/// to stay as it is.
pub(super) fn step(own: &Path) -> bool {
    let me = std::process::id();
    let leaf = own.join(format!("{PREFIX}{NAME}{me}"));
    let Some(inside) = inside(own).filter(|inside| are_ours(inside, me)) else {
        return false;
    };
    if fs::create_dir(&leaf).is_err() {
        return false;
    }
    let procs = leaf.join("cgroup.procs");
    for pid in inside {
        // One that ended meanwhile is not there to be moved.
        let _gone = fs::write(&procs, pid.to_string());
    }
    // Who was born meanwhile was born to one of them, and is found by the second look.
    for pid in self::inside(own).unwrap_or_default() {
        let _gone = fs::write(&procs, pid.to_string());
    }
    true
}

fn inside(own: &Path) -> Option<BTreeSet<u32>> {
    let text = fs::read_to_string(own.join("cgroup.procs")).ok()?;
    text.lines().map(|line| line.parse().ok()).collect()
}

/// Whether all of these are this process or below it.
fn are_ours(pids: &BTreeSet<u32>, me: u32) -> bool {
    let mut ours = BTreeSet::from([me]);
    let mut next = vec![me];
    while let Some(pid) = next.pop() {
        let new = members::children(pid).into_iter();
        next.extend(new.filter(|child| ours.insert(*child)));
    }
    pids.is_subset(&ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_stepped_aside_divides_what_it_came_from() {
        let home = |path: &str| home(path.into());
        assert_eq!(
            home("/c/a.service/fdguard-self-7"),
            Path::new("/c/a.service")
        );
        assert_eq!(home("/c/a.service"), Path::new("/c/a.service"));
        assert_eq!(home("/c/fdguard-7-1-0"), Path::new("/c/fdguard-7-1-0"));
    }

    #[test]
    fn a_stranger_is_not_ours() {
        let me = std::process::id();
        assert!(are_ours(&BTreeSet::from([me]), me));
        assert!(!are_ours(
            &BTreeSet::from([me, std::os::unix::process::parent_id()]),
            me
        ));
    }
}
