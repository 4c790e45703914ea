//! Which file systems files are on, by device number.

use std::collections::HashMap;

use fdguard_core::{Detail, FdEntry, Pid};
use fdguard_proc::mountinfo;

use super::{Probe, files};

impl Probe {
    /// Adds the device number of each file's file system, by its mount.
    pub(super) fn describe_devices(&self, pid: Pid, entries: &mut [FdEntry]) {
        let mut theirs: Option<HashMap<u64, String>> = None;
        for entry in entries {
            let Some(mnt) = entry.id.map(|id| id.mnt) else {
                continue;
            };
            let Detail::File(file) = &mut entry.detail else {
                continue;
            };
            // Mounts of another namespace, and mounts that are newer than the list.
            file.dev = self.mounts.device(mnt).cloned().or_else(|| {
                let theirs = theirs.get_or_insert_with(|| self.devices_of(pid));
                theirs.get(&mnt).cloned()
            });
        }
    }

    fn devices_of(&self, pid: Pid) -> HashMap<u64, String> {
        let text = files::read_pieces(&self.proc, format!("{pid}/mountinfo"));
        mountinfo::devices(&text.unwrap_or_default()).collect()
    }
}
