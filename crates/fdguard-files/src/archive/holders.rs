//! Who has a file, by name: for people. Whether anybody can write is for the kernel to say.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fdguard_core::{Gap, Text};
use fdguard_probe::Probe;
use fdguard_probe::linux::holders::{By, Sought};
use fdguard_probe::parse::fdinfo::Fdinfo;

use super::receipt::{Holder, Means};

/// Who was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Who can write, or who may be able to.
    pub(super) writers: Vec<Holder>,
    /// Who has a lock.
    pub(super) lockers: Vec<Holder>,
    /// What could not be seen; nothing: every process was looked at.
    pub(super) gaps: Vec<Gap>,
}

/// Walks over all processes. The path is where the file is now.
pub(super) fn find(path: &Path, file: &File) -> Found {
    let Ok(meta) = file.metadata() else {
        return Found::default();
    };
    let id = (meta.dev(), meta.ino());
    let mut found = Found::default();
    let sought = Sought {
        path: path.as_os_str().as_encoded_bytes().to_vec(),
        id: Some(id),
    };
    let walked = Probe::new().and_then(|probe| probe.holders(std::slice::from_ref(&sought), true));
    match walked {
        Ok(walked) => {
            for held in walked.held.iter().filter(|held| held.current) {
                let (fd, by) = match held.by {
                    By::Descriptor { fd, .. } => (Some(fd), Means::Descriptor),
                    By::Mapping => (None, Means::Mapping),
                    By::Ring { fd } => (Some(fd), Means::IoUring),
                };
                let holder = Holder {
                    pid: held.pid,
                    comm: held.comm.clone(),
                    fd,
                    by,
                    at_deadline: false,
                };
                if held.locks.iter().any(|lock| is_lock(&lock.kind)) {
                    found.lockers.push(holder.clone());
                }
                if held.by.writes() != Some(false) {
                    found.writers.push(holder);
                }
            }
            found.gaps.extend(walked.gaps);
        }
        Err(error) => found.gaps.push(Gap::new(
            "who has the file",
            error.to_string(),
            "mount /proc (mount -t proc proc /proc)",
        )),
    }
    own(id, &mut found);
    found
}

fn is_lock(kind: &str) -> bool {
    matches!(kind, "POSIX" | "FLOCK" | "OFDLCK")
}

/// This process is not on the walk, but another part of it may have the file.
fn own(id: (u64, u64), found: &mut Found) {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    for entry in entries.flatten() {
        let is_it = entry
            .path()
            .metadata()
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == id);
        let fd = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let (true, Some(fd)) = (is_it, fd) else {
            continue;
        };
        let info = std::fs::read(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let writes = Fdinfo::parse(&info).mode().map(fdguard_core::Mode::writes);
        if writes != Some(false) {
            found.writers.push(Holder {
                pid: std::process::id(),
                comm: Text::from(name.trim_ascii_end()),
                fd: Some(fd),
                by: Means::Descriptor,
                at_deadline: false,
            });
        }
    }
}

/// Adds who is there at the deadline: who was there at the begin is marked.
pub(super) fn at_deadline(before: &mut Vec<Holder>, now: Vec<Holder>) {
    for mut holder in now {
        holder.at_deadline = true;
        let same = before.iter_mut().find(|other| {
            (other.pid, other.fd, other.by) == (holder.pid, holder.fd, holder.by)
        });
        match same {
            Some(other) => other.at_deadline = true,
            None => before.push(holder),
        }
    }
}

/// `python3 (pid 12, descriptor 3), cat (pid 14, mapped)`.
pub(super) fn names(holders: &[Holder]) -> String {
    let shown = holders.iter().take(8).map(|holder| {
        let how = match (holder.by, holder.fd) {
            (Means::Descriptor, Some(fd)) => format!("descriptor {fd}"),
            (Means::IoUring, Some(fd)) => format!("io_uring {fd}"),
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
