//! Cgroups with names as systemd, Docker and kubelet give them.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a hierarchy may be: with version 1 beside 2, and with version 2 alone.
const ROOTS: [&str; 3] = [
    "/sys/fs/cgroup/systemd",
    "/sys/fs/cgroup/unified",
    "/sys/fs/cgroup",
];

/// A cgroup that a test made. Drop moves its processes to the root and removes it.
#[derive(Debug)]
pub struct TestCgroup {
    root: PathBuf,
    /// What did not exist before, outermost first.
    made: Vec<PathBuf>,
}

impl TestCgroup {
    /// Makes this path in the first hierarchy that allows it; `None` if none does.
    #[must_use]
    pub fn create(path: &str) -> Option<Self> {
        ROOTS
            .iter()
            .find_map(|root| Self::below(Path::new(root), path))
    }

    fn below(root: &Path, path: &str) -> Option<Self> {
        if !root.join("cgroup.procs").exists() {
            return None;
        }
        let mut group = Self {
            root: root.to_owned(),
            made: Vec::new(),
        };
        let mut dir = root.to_owned();
        for component in path.split('/') {
            dir.push(component);
            match fs::create_dir(&dir) {
                Ok(()) => group.made.push(dir.clone()),
                Err(_) if dir.is_dir() => {}
                Err(_) => return None,
            }
        }
        (!group.made.is_empty()).then_some(group)
    }

    /// Moves a process into it.
    pub fn add(&self, pid: u32) {
        fs::write(self.procs(), pid.to_string()).expect("moving a process into the cgroup");
    }

    /// The file to which a process writes its number to enter the group.
    #[must_use]
    pub fn procs(&self) -> PathBuf {
        let procs = self.made.last().map(|dir| dir.join("cgroup.procs"));
        procs.expect("a group was made")
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        for dir in self.made.iter().rev() {
            let left = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
            for pid in left.lines() {
                // It may have ended.
                drop(fs::write(self.root.join("cgroup.procs"), pid));
            }
            drop(fs::remove_dir(dir));
        }
    }
}
