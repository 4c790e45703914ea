//! Moves fdguard out of its own cgroup into a leaf, so that the cgroup may be divided: a service
//! that is given its cgroup (`Delegate=yes`) starts in the inner node.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fdguard_proc::process::children;

use super::PREFIX;

/// Follows the prefix of all leaves; the owner's pid comes next.
pub(super) const NAME: &str = "self-";

/// The cgroup that is divided: the one that fdguard is in, or was in before it moved aside.
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

/// Moves fdguard and everything below it into a leaf, if no other process is in the cgroup. False
/// if the cgroup has to stay as it is.
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
        // A process that ended meanwhile cannot be moved.
        let _gone = fs::write(&procs, pid.to_string());
    }
    // A process created meanwhile is a child of one of them, and the second scan finds it.
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
        let new = children(pid).into_iter();
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
