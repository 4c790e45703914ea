//! Names the processes that hold a file, for people. Whether the file has writers is decided by a
//! lease.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fdguard_core::{Gap, Text};
use fdguard_probe::Probe;
use fdguard_probe::fdinfo_detail;
use fdguard_probe::linux::holders::{FileHold, HoldKind, SoughtFile};
use fdguard_proc::comm;
use fdguard_proc::fdinfo::Fdinfo;

use super::receipt::{FileHolder, HolderSource};

/// Holders of a file.
#[derive(Debug, Default)]
pub(super) struct FoundHolders {
    /// Processes that can write, or may be able to.
    pub(super) writers: Vec<FileHolder>,
    /// Processes that hold a lock.
    pub(super) lockers: Vec<FileHolder>,
    /// What could not be examined; empty if every process was.
    pub(super) gaps: Vec<Gap>,
}

/// A file to search for, and its current path.
pub(super) type HolderSearch<'a> = (PathBuf, &'a File);

/// Searches all processes for one file.
pub(super) fn find(path: &Path, file: &File) -> FoundHolders {
    let found = find_all(&[(path.to_owned(), file)]);
    found.into_iter().next().unwrap_or_default()
}

/// Searches all processes once, for all of these files.
pub(super) fn find_all(files: &[HolderSearch<'_>]) -> Vec<FoundHolders> {
    let id = |file: &File| file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    let sought: Vec<SoughtFile> = files
        .iter()
        .map(|(path, file)| SoughtFile {
            path: path.as_os_str().as_encoded_bytes().to_vec(),
            id: id(file),
        })
        .collect();
    let mut all: Vec<FoundHolders> = sought.iter().map(|_| FoundHolders::default()).collect();
    match Probe::new().and_then(|probe| probe.holders(&sought, true)) {
        Ok(walked) => {
            for held in walked.held.iter().filter(|held| held.current) {
                if let Some(found) = all.get_mut(held.which) {
                    found.add(held);
                }
            }
            for found in &mut all {
                found.gaps.extend(walked.gaps.iter().cloned());
            }
        }
        Err(error) => {
            let gap = Gap::new(
                "processes that hold the file",
                error.to_string(),
                "mount /proc (mount -t proc proc /proc)",
            );
            for found in &mut all {
                found.gaps.push(gap.clone());
            }
        }
    }
    own(&sought, &mut all);
    all
}

impl FoundHolders {
    fn add(&mut self, held: &FileHold) {
        let (fd, by) = match held.by {
            HoldKind::Descriptor { fd, .. } => (Some(fd), HolderSource::Descriptor),
            HoldKind::Mapping => (None, HolderSource::Mapping),
            HoldKind::Ring { fd } => (Some(fd), HolderSource::IoUring),
        };
        let holder = FileHolder {
            pid: held.pid,
            comm: held.comm.clone(),
            fd,
            by,
            at_deadline: false,
        };
        if held.locks.iter().any(|lock| is_lock(&lock.kind)) {
            self.lockers.push(holder.clone());
        }
        if held.by.writes() != Some(false) {
            self.writers.push(holder);
        }
    }
}

fn is_lock(kind: &str) -> bool {
    matches!(kind, "POSIX" | "FLOCK" | "OFDLCK")
}

/// The search skips this process, but another part of it may hold a file.
fn own(sought: &[SoughtFile], all: &mut [FoundHolders]) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    for entry in entries.flatten() {
        let meta = entry.path().metadata();
        let id = meta.map(|meta| (meta.dev(), meta.ino())).ok();
        let which = sought.iter().position(|one| id.is_some() && one.id == id);
        let fd: Option<u32> = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let (Some(which), Some(fd)) = (which, fd) else {
            continue;
        };
        let info = std::fs::read(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let info = Fdinfo::parse(&info);
        let holder = FileHolder {
            pid: std::process::id(),
            comm: Text::from(comm::name(&name)),
            fd: Some(fd),
            by: HolderSource::Descriptor,
            at_deadline: false,
        };
        if info.locks().any(|lock| is_lock(&lock.kind)) {
            all[which].lockers.push(holder.clone());
        }
        if fdinfo_detail::mode(&info).map(fdguard_core::Mode::writes) != Some(false) {
            all[which].writers.push(holder);
        }
    }
}

/// Adds the holders at the deadline; those present at the start are marked.
pub(super) fn at_deadline(before: &mut Vec<FileHolder>, now: Vec<FileHolder>) {
    for mut holder in now {
        holder.at_deadline = true;
        let same = before
            .iter_mut()
            .find(|other| (other.pid, other.fd, other.by) == (holder.pid, holder.fd, holder.by));
        match same {
            Some(other) => other.at_deadline = true,
            None => before.push(holder),
        }
    }
}

/// `python3 (pid 12, descriptor 3), cat (pid 14, mapped)`.
pub(super) fn names(holders: &[FileHolder]) -> String {
    let shown = holders.iter().take(8).map(|holder| {
        let how = match (holder.by, holder.fd) {
            (HolderSource::Descriptor, Some(fd)) => format!("descriptor {fd}"),
            (HolderSource::IoUring, Some(fd)) => format!("io_uring {fd}"),
            _ => "mapped".to_owned(),
        };
        format!("{} (pid {}, {how})", holder.comm.to_lossy(), holder.pid)
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if holders.len() > 8 {
        text.push_str(&format!(" and {} more", holders.len() - 8));
    }
    text
}
