//! One process's table from its records, and from `/proc` where that has more.

use std::os::fd::OwnedFd;

use fdguard_core::{Fd, Pid};
use rustix::io::Errno;

use super::super::table::{Table, TableDir};
use super::super::{Probe, epoll, files};
use super::entry;
use super::record::Record;
use crate::sqlite;

impl Probe {
    /// The table, and whether every listed number could still be read.
    pub(in super::super) fn table_by_kernel(
        &self,
        pid: Pid,
        base: &OwnedFd,
        records: &[u8],
    ) -> Result<(Table, bool), Errno> {
        let (mut table, unclear) = sort_out(records);
        let mut dir = None;
        if !unclear.is_empty() {
            match self.table_dir(pid, base) {
                Ok(opened) => table.absorb(dir.insert(opened).read(&unclear)),
                // The kernel walk shows more than `/proc` allows.
                Err(error) if files::is_denied(error) => {
                    table.listed += unclear.len() as u64;
                    table.denied += unclear.len() as u64;
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = table.trouble {
            return Err(error);
        }
        table.entries.sort_unstable_by_key(|entry| entry.fd);
        epoll::mark_ghosts(&mut table.entries, &table.epolls);
        if sqlite::may_be_among(&table.entries) {
            let dir = dir.or_else(|| self.table_dir(pid, base).ok());
            sqlite::classify(&mut table.entries, dir.as_ref().map(TableDir::as_fd));
        }
        table.by_kernel = true;
        let complete = table.count() == table.listed && table.listed > 0;
        Ok((table, complete))
    }
}

/// The entries that the records alone determine, and the numbers that need a closer look.
fn sort_out(mut records: &[u8]) -> (Table, Vec<Fd>) {
    let mut table = Table::default();
    let mut unclear = Vec::new();
    while let Some((record, rest)) = Record::take(records) {
        records = rest;
        match entry::read_entry(&record) {
            Some(seen) => {
                table.listed += 1;
                table.add(seen);
            }
            None => unclear.push(record.fd),
        }
    }
    (table, unclear)
}
