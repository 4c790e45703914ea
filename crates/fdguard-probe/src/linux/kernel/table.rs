//! One process's table from its records, and from `/proc` where that has more.

use std::cell::OnceCell;
use std::os::fd::OwnedFd;

use fdguard_core::{Fd, Pid};
use rustix::io::Errno;

use super::super::pass::{self, Needs};
use super::super::table::{TableDir, TableDraft};
use super::super::{Probe, files};
use super::entry;
use super::record::Record;

impl Probe {
    /// The table, without what the passes add that need no open table.
    pub(in super::super) fn table_by_kernel(
        &self,
        pid: Pid,
        base: &OwnedFd,
        records: &[u8],
    ) -> Result<TableDraft, Errno> {
        let (mut table, unclear) = sort_out(pid, records);
        // Opened only if something needs it.
        let opened = OnceCell::new();
        let dir = || opened.get_or_init(|| self.table_dir(pid, base)).as_ref();
        if !unclear.is_empty() {
            match dir() {
                Ok(dir) => table.absorb(dir.read(&unclear)),
                // The kernel walk shows more than `/proc` allows.
                Err(error) if files::is_denied(*error) => {
                    table.listed += unclear.len() as u64;
                    table.denied += unclear.len() as u64;
                }
                Err(error) => return Err(*error),
            }
        }
        if let Some(error) = table.trouble {
            return Err(error);
        }
        table.entries.sort_unstable_by_key(|entry| entry.fd);
        table.by_kernel = true;
        pass::run_open(&mut table, Needs::Table, &|| {
            dir().ok().map(TableDir::as_fd)
        });
        Ok(table)
    }
}

/// The entries that the records alone determine, and the numbers that need a closer look.
fn sort_out(pid: Pid, mut records: &[u8]) -> (TableDraft, Vec<Fd>) {
    let mut table = TableDraft::new(pid);
    let mut unclear = Vec::new();
    while let Some((record, rest)) = Record::take(records) {
        records = rest;
        match entry::read_entry(&record) {
            Some(entry) => {
                table.listed += 1;
                table.add(entry);
            }
            None => unclear.push(record.fd),
        }
    }
    (table, unclear)
}
