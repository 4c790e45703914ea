//! Which file systems files are on, by device number.

use std::collections::HashMap;

use fdguard_core::Detail;

use super::Context;
use crate::linux::files;
use crate::linux::table::TableDraft;
use fdguard_proc::mountinfo;

/// Adds the device number of each file's file system, by its mount.
pub(super) fn describe(context: &Context<'_>, table: &mut TableDraft) {
    let probe = context.probe;
    let devices = || {
        let text = files::read_pieces(&probe.proc, format!("{}/mountinfo", table.pid));
        mountinfo::devices(&text.unwrap_or_default()).collect()
    };
    let mut theirs: Option<HashMap<u64, String>> = None;
    for entry in &mut table.entries {
        let Some(mnt) = entry.id.map(|id| id.mnt) else {
            continue;
        };
        let Detail::File(file) = &mut entry.detail else {
            continue;
        };
        // Mounts of another namespace, and mounts that are newer than the list.
        file.dev = probe.mounts.device(mnt).cloned().or_else(|| {
            let theirs = theirs.get_or_insert_with(devices);
            theirs.get(&mnt).cloned()
        });
    }
}
