//! One process's table from its records, and from `/proc` where that has more.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock, PoisonError};

use fdguard_core::{Fd, Pid};
use rustix::io::Errno;

use super::super::pass::{self, Needs};
use super::super::table::{TableDir, TableDraft};
use super::super::{Probe, files};
use super::record::Record;
use super::stream::RecordStream;
use super::{KernelReader, entry};
use crate::workers;

/// From this many descriptors on, loading the program takes less time than it saves.
pub(in super::super) const WORTH_A_WALK: u64 = 512;

impl Probe {
    /// The table from the records of a walk over all of them, without what the passes add that need
    /// no open table.
    pub(in super::super) fn table_by_records(
        &self,
        pid: Pid,
        base: &OwnedFd,
        records: &[u8],
    ) -> Result<TableDraft, Errno> {
        let reader = TableReader::new(self, pid, base);
        let mut table = TableDraft::new(pid);
        reader.add(&mut table, records, &|_| true)?;
        reader.finish(table)
    }

    /// The table by a kernel walk over it alone, on several cores; `None` if there can be no such
    /// walk, or if it found nothing of this process.
    pub(in super::super) fn table_by_walk(
        &self,
        kernel: &KernelReader,
        (pid, start_ticks): (Pid, u64),
        base: &OwnedFd,
        threads: usize,
    ) -> Option<Result<TableDraft, Errno>> {
        let records = Mutex::new(kernel.records(Some(pid))?);
        let reader = TableReader::new(self, pid, base);
        let is_its = |record: &Record<'_>| record.pid == pid && record.start_ticks() == start_ticks;
        let parts = workers::run(threads, || reader.add_from(&records, &is_its));
        let mut table = TableDraft::new(pid);
        for part in parts {
            match part {
                Ok(part) => table.merge(part),
                Err(WalkFailure::Walk) => return None,
                Err(WalkFailure::Table(error)) => return Some(Err(error)),
            }
        }
        (table.listed > 0).then(|| reader.finish(table))
    }
}

/// Why a walk over one table ended early.
enum WalkFailure {
    /// The walk itself: `/proc` is left.
    Walk,
    /// Reading what the records lack.
    Table(Errno),
}

/// Makes entries of records.
struct TableReader<'a> {
    probe: &'a Probe,
    pid: Pid,
    base: &'a OwnedFd,
    /// Opened only if something needs it.
    dir: OnceLock<Result<TableDir, Errno>>,
}

impl<'a> TableReader<'a> {
    fn new(probe: &'a Probe, pid: Pid, base: &'a OwnedFd) -> Self {
        Self {
            probe,
            pid,
            base,
            dir: OnceLock::new(),
        }
    }

    fn dir(&self) -> Result<&TableDir, Errno> {
        let open = || self.probe.table_dir(self.pid, self.base);
        self.dir.get_or_init(open).as_ref().map_err(|error| *error)
    }

    /// Takes chunks in turns with other threads: while one reads from the kernel, the others make
    /// entries.
    fn add_from(
        &self,
        records: &Mutex<RecordStream<'_>>,
        is_its: &impl Fn(&Record<'_>) -> bool,
    ) -> Result<TableDraft, WalkFailure> {
        let mut table = TableDraft::new(self.pid);
        let mut chunk = Vec::new();
        loop {
            let next = records
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .next_chunk(&mut chunk);
            match next {
                Ok(true) => self
                    .add(&mut table, &chunk, is_its)
                    .map_err(WalkFailure::Table)?,
                Ok(false) => return Ok(table),
                Err(_) => return Err(WalkFailure::Walk),
            }
        }
    }

    /// Adds the descriptors of these records, ascending as they are.
    fn add(
        &self,
        table: &mut TableDraft,
        mut records: &[u8],
        is_its: &impl Fn(&Record<'_>) -> bool,
    ) -> Result<(), Errno> {
        let first = table.entries.len();
        let (mut unclear, mut text) = (Vec::new(), Vec::new());
        while let Some((record, rest)) = Record::take(records) {
            records = rest;
            if !is_its(&record) {
                continue;
            }
            match entry::read_entry(&record, &mut text) {
                Some(entry) => {
                    table.listed += 1;
                    table.add(entry);
                }
                None => unclear.push(record.fd),
            }
        }
        if !unclear.is_empty() {
            self.add_unclear(table, &unclear)?;
            table.entries[first..].sort_by_key(|entry| entry.fd);
        }
        Ok(())
    }

    /// Adds numbers that their records do not determine.
    fn add_unclear(&self, table: &mut TableDraft, unclear: &[Fd]) -> Result<(), Errno> {
        match self.dir() {
            Ok(dir) => table.absorb(dir.read(unclear)),
            // The kernel walk shows more than `/proc` allows.
            Err(error) if files::is_denied(error) => {
                table.listed += unclear.len() as u64;
                table.denied += unclear.len() as u64;
            }
            Err(error) => return Err(error),
        }
        match table.trouble {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The table, with what needs it to be open.
    fn finish(&self, mut table: TableDraft) -> Result<TableDraft, Errno> {
        table.by_kernel = true;
        pass::run_open(&mut table, Needs::Table, &|| {
            self.dir().ok().map(TableDir::as_fd)
        });
        Ok(table)
    }
}
