//! Logs that must not lose a line while they are archived.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fdguard_files::Archive;
use fdguard_files::archive::{ArchiveOutcome, ArchiveReceipt, ArchiveReport};
use tempfile::TempDir;
pub(crate) use testkit::wait_until as until;

mod crash;
mod edges;
mod leaseless;
mod newcomers;
mod plain;
mod together;
mod writers;

/// A directory with logs, and an archive.
pub(crate) struct Place {
    pub(crate) logs: TempDir,
    pub(crate) to: TempDir,
}

impl Place {
    /// On one file system.
    pub(crate) fn same() -> Self {
        Self {
            logs: tempfile::tempdir().unwrap(),
            to: tempfile::tempdir().unwrap(),
        }
    }

    /// On two; `None`, and a message, if there is only one.
    pub(crate) fn across() -> Option<Self> {
        let logs = tempfile::tempdir().unwrap();
        let device = logs.path().metadata().unwrap().dev();
        let others = ["/dev/shm", "/run", "/var/tmp", "."];
        let to = others.iter().find_map(|path| {
            let is_other = Path::new(path).metadata().ok()?.dev() != device;
            is_other.then(|| tempfile::tempdir_in(path).ok()).flatten()
        });
        if to.is_none() {
            testkit::skip("there is no second file system that may be written");
        }
        Some(Self { logs, to: to? })
    }

    /// Both, as far as available.
    pub(crate) fn both() -> impl Iterator<Item = Self> {
        [Some(Self::same()), Self::across()].into_iter().flatten()
    }

    /// A file with this content.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.logs.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn archive(&self, wait: Duration) -> Archive {
        Archive {
            wait,
            ..Archive::new(self.to.path())
        }
    }

    /// Archives one file without waiting.
    pub(crate) fn once(&self, path: &Path) -> ArchiveReceipt {
        one(self.archive(Duration::ZERO).run(&[path.to_owned()]))
    }

    /// Archives one file, with a longer wait than any test needs.
    pub(crate) fn patiently(&self, path: &Path) -> ArchiveReceipt {
        one(self.archive(PATIENCE).run(&[path.to_owned()]))
    }

    /// The archive, as text, by name.
    pub(crate) fn archived(&self, name: &str) -> String {
        fs::read_to_string(self.to.path().join(name)).unwrap()
    }

    /// No temporary names of an archive are left.
    pub(crate) fn assert_tidy(&self) {
        for dir in [&self.logs, &self.to] {
            for name in listed(dir.path()) {
                let is_ours = name.ends_with(".closing")
                    || name.contains(".tmp")
                    || name.starts_with(".fdguard");
                assert!(!is_ours, "{name} was left in {}", dir.path().display());
            }
        }
    }
}

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The receipt of the only file.
pub(crate) fn one(report: ArchiveReport) -> ArchiveReceipt {
    assert_eq!(report.files.len(), 1, "{report:?}");
    let receipt = report.files.into_iter().next().unwrap();
    let is_good = matches!(
        receipt.outcome,
        ArchiveOutcome::Archived | ArchiveOutcome::AlreadyArchived
    );
    assert_eq!(report.success, is_good);
    assert_eq!(receipt.error.is_none(), is_good, "{receipt:?}");
    receipt
}

/// The names in a directory, in order.
pub(crate) fn listed(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Every line of every file in these directories, in order.
pub(crate) fn all_lines(dirs: &[&Path]) -> Vec<String> {
    let mut lines = Vec::new();
    for dir in dirs {
        for name in listed(dir) {
            let text = fs::read_to_string(dir.join(name)).unwrap();
            lines.extend(text.lines().map(str::to_owned));
        }
    }
    lines.sort();
    lines
}

pub(crate) fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Where a file is while it is archived.
pub(crate) fn closing(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".closing");
    name.into()
}
