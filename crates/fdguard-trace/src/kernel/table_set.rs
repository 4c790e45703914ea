//! Every table of descriptors, by the address that the kernel calls it by.

use std::collections::{BTreeSet, HashMap};

use super::fd_table::FdTable;
use super::process::TableId;

/// The tables of all traced processes.
#[derive(Debug, Default)]
pub(super) struct TableSet {
    tables: HashMap<TableId, SharedTable>,
    by_address: HashMap<u64, TableId>,
    last_id: u64,
}

/// A table and the processes that have it.
#[derive(Debug, Default)]
pub(super) struct SharedTable {
    pub(super) table: FdTable,
    /// The kernel's own address, once an event named it.
    pub(super) address: Option<u64>,
    pub(super) pids: BTreeSet<u32>,
    /// The time of the last event that changed it.
    pub(super) changed: u64,
    /// When it was last compared with what is open.
    pub(super) checked: u64,
}

impl TableSet {
    pub(super) fn add(&mut self, table: FdTable) -> TableId {
        self.last_id += 1;
        let id = TableId(self.last_id);
        let shared = SharedTable {
            table,
            ..SharedTable::default()
        };
        self.tables.insert(id, shared);
        id
    }

    pub(super) fn get(&self, id: TableId) -> Option<&SharedTable> {
        self.tables.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: TableId) -> Option<&mut SharedTable> {
        self.tables.get_mut(&id)
    }

    pub(super) fn at(&self, address: u64) -> Option<TableId> {
        self.by_address.get(&address).copied()
    }

    /// The kernel calls this table by this address from now on. Addresses are used again.
    pub(super) fn bind(&mut self, id: TableId, address: u64) {
        let stale = self.by_address.insert(address, id).filter(|old| *old != id);
        if let Some(shared) = stale.and_then(|stale| self.tables.get_mut(&stale)) {
            shared.address = None;
        }
        let shared = self.tables.get_mut(&id);
        let before = shared.and_then(|shared| shared.address.replace(address));
        if let Some(before) = before.filter(|before| *before != address) {
            self.by_address.remove(&before);
        }
    }

    pub(super) fn join(&mut self, id: TableId, pid: u32) {
        if let Some(shared) = self.tables.get_mut(&id) {
            shared.pids.insert(pid);
        }
    }

    /// A process has this table no longer; returns the table as it was. Without processes it is
    /// gone.
    pub(super) fn leave(&mut self, id: TableId, pid: u32) -> Option<FdTable> {
        let shared = self.tables.get_mut(&id)?;
        shared.pids.remove(&pid);
        if !shared.pids.is_empty() {
            return Some(shared.table.clone());
        }
        if let Some(address) = shared.address {
            self.by_address.remove(&address);
        }
        self.tables.remove(&id).map(|shared| shared.table)
    }

    /// One process of each table that is worth a comparison with what is open: nothing has changed
    /// since `quiet`, and it changed since the last comparison or that was before `old`.
    pub(super) fn unchecked(&self, quiet: u64, old: u64) -> Vec<u32> {
        let is_due = |one: &&SharedTable| {
            one.changed <= quiet && (one.changed > one.checked || one.checked < old)
        };
        let tables = self.tables.values().filter(is_due);
        tables.filter_map(|one| one.pids.first().copied()).collect()
    }
}
