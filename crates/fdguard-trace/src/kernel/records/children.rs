//! Children that processes start and wait for.

use fdguard_kernel::KernelEvent;
use fdguard_wire::{EventKind, EventRecord};

use super::KernelRecords;
use crate::kernel::process::record;

impl KernelRecords {
    /// A process forked: the call that did it returns later, with its line.
    pub(super) fn note_fork(&mut self, event: &KernelEvent, child: u32) {
        let key = self.current(event.pid);
        if let Some(process) = key.and_then(|key| self.processes.get_mut(&key)) {
            process.forks.insert(event.tid, child);
        }
    }

    /// The call that started a child has returned. `child` is the number that the process knows it
    /// by, which is another one in a pid namespace of its own.
    pub(super) fn start_child(&mut self, event: &KernelEvent, child: u32) {
        let key = self.current(event.pid);
        if let Some(process) = key.and_then(|key| self.processes.get_mut(&key)) {
            let visible = process.forks.remove(&event.tid).unwrap_or(child);
            process.children.insert(child, visible);
            process.push(EventRecord {
                stack: event.stack,
                more: [u64::from(visible), 0],
                ..record(EventKind::Started, (event.at, event.tid), 0)
            });
        }
    }

    /// A process waited for a child that has ended.
    pub(super) fn reap_child(&mut self, event: &KernelEvent, child: u32) {
        let key = self.current(event.pid);
        if let Some(process) = key.and_then(|key| self.processes.get_mut(&key)) {
            let visible = process.children.remove(&child).unwrap_or(child);
            process.push(EventRecord {
                more: [u64::from(visible), 0],
                ..record(EventKind::Reaped, (event.at, event.tid), 0)
            });
        }
    }
}
