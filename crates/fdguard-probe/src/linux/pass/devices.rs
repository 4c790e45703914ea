//! Which file systems files are on, by device number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use fdguard_core::{Detail, Pid, Text};
use fdguard_proc::mountinfo;
use rustc_hash::FxHashMap;

use super::Context;
use crate::linux::table::TableDraft;
use crate::linux::{Probe, files};

/// Device numbers by mount.
type Devices = FxHashMap<u64, Text>;

/// The mounts of other namespaces: read once for all processes with the same namespace and the same
/// root, which is all that their list of mounts depends on.
#[derive(Debug, Default)]
pub(in crate::linux) struct ForeignMounts(Mutex<HashMap<[Vec<u8>; 2], Arc<Devices>>>);

/// Adds the device number of each file's file system, by its mount.
pub(super) fn describe(context: &Context<'_>, table: &mut TableDraft) {
    let probe = context.probe;
    let mut theirs: Option<Arc<Devices>> = None;
    // Most files of a process are on few mounts, and often neighbours.
    let mut last: Option<(u64, Option<Text>)> = None;
    for entry in &mut table.entries {
        let Some(mnt) = entry.id.map(|id| id.mnt) else {
            continue;
        };
        let Detail::File(file) = &mut entry.detail else {
            continue;
        };
        let mut find = || {
            // Mounts of another namespace, and mounts that are newer than the list.
            probe.mounts.device(mnt).cloned().or_else(|| {
                let read = || context.foreign_mounts.devices(probe, table.pid);
                theirs.get_or_insert_with(read).get(&mnt).cloned()
            })
        };
        let known = last.take().filter(|(known, _)| *known == mnt);
        let (_, device) = last.insert(known.unwrap_or_else(|| (mnt, find())));
        file.dev.clone_from(device);
    }
}

impl ForeignMounts {
    fn devices(&self, probe: &Probe, pid: Pid) -> Arc<Devices> {
        let read = || {
            let text = files::read_pieces(&probe.proc, format!("{pid}/mountinfo"));
            let text = text.unwrap_or_default();
            let devices = mountinfo::devices(&text);
            Arc::new(
                devices
                    .map(|(mount, device)| (mount, Text::from(device)))
                    .collect(),
            )
        };
        let link = |name| files::read_link(&probe.proc, format!("{pid}/{name}")).ok();
        let Some((namespace, root)) = link("ns/mnt").zip(link("root")) else {
            return read();
        };
        let key = [namespace, root];
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(key).or_insert_with(read).clone()
    }
}
