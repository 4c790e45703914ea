//! One process's table from its records, and from `/proc` where that has more.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fdguard_core::{Fd, Pid};
use rustix::io::Errno;

use super::super::pass::{self, Needs};
use super::super::table::{TableDir, TableDraft};
use super::super::{Probe, files};
use super::record::Record;
use super::{KernelReader, MOST_PARTS, entry};
use crate::workers;

/// From this many descriptors on, loading the program takes less time than it saves.
pub(in super::super) const WORTH_A_WALK: u64 = 512;
/// From this many on, a second program for another core does.
const WORTH_TWO: u32 = 2048;

impl Probe {
    /// The table by a kernel walk over it alone, on several cores; `None` if there can be no such
    /// walk, or if it found nothing of this process.
    pub(in super::super) fn table_by_walk(
        &self,
        kernel: &KernelReader,
        process: (Pid, u64),
        base: &OwnedFd,
        threads: usize,
    ) -> Option<Result<TableDraft, Errno>> {
        let reader = TableReader::new(self, process.0, base);
        let table = reader.walk(kernel, process, threads, &|_| true)?;
        Some(table.map(|table| reader.finish(table)))
    }

    /// The same for some numbers, ascending, and without the passes.
    pub(in super::super) fn numbers_by_walk(
        &self,
        kernel: &KernelReader,
        process: (Pid, u64),
        base: &OwnedFd,
        numbers: &[Fd],
    ) -> Option<Result<TableDraft, Errno>> {
        let reader = TableReader::new(self, process.0, base);
        let is_wanted = |fd: Fd| numbers.binary_search(&fd).is_ok();
        reader.walk(kernel, process, 1, &is_wanted)
    }
}

/// Why a walk over one table ended early.
enum WalkFailure {
    /// The walk itself: `/proc` is left.
    Walk,
    /// Reading what the records lack.
    Table(Errno),
}

/// Joins the parts of a table; `None` if a walk failed or all found nothing.
fn join(
    pid: Pid,
    count: u32,
    mut parts: Vec<(u32, Result<TableDraft, WalkFailure>)>,
) -> Option<Result<TableDraft, Errno>> {
    parts.sort_by_key(|(part, _)| *part);
    let mut table = TableDraft::new(pid);
    for (_, part) in parts {
        match part {
            Ok(mut part) if table.listed > 0 => table.absorb(&mut part),
            Ok(part) => {
                table = part;
                let rest = usize::try_from(count).unwrap_or(0);
                let rest = rest.saturating_sub(table.entries.len());
                table.entries.reserve(rest);
            }
            Err(WalkFailure::Walk) => return None,
            Err(WalkFailure::Table(error)) => return Some(Err(error)),
        }
    }
    (table.listed > 0).then_some(Ok(table))
}

/// Makes entries of records.
pub(super) struct TableReader<'a> {
    probe: &'a Probe,
    pid: Pid,
    base: Base<'a>,
    /// Opened only if something needs it.
    dir: OnceLock<Result<TableDir, Errno>>,
}

/// The directory of the process.
enum Base<'a> {
    Open(&'a OwnedFd),
    /// Opened only if something needs it: the process has this start time.
    Later(u64),
}

impl<'a> TableReader<'a> {
    fn new(probe: &'a Probe, pid: Pid, base: &'a OwnedFd) -> Self {
        Self {
            probe,
            pid,
            base: Base::Open(base),
            dir: OnceLock::new(),
        }
    }

    /// For a process whose directory is not open.
    pub(super) fn later(probe: &'a Probe, pid: Pid, start_ticks: u64) -> Self {
        Self {
            probe,
            pid,
            base: Base::Later(start_ticks),
            dir: OnceLock::new(),
        }
    }

    fn walk(
        &self,
        kernel: &KernelReader,
        (pid, start_ticks): (Pid, u64),
        threads: usize,
        is_wanted: &(impl Fn(Fd) -> bool + Sync),
    ) -> Option<Result<TableDraft, Errno>> {
        let is_its = |record: &Record<'_>| {
            record.pid == pid && record.start_ticks() == start_ticks && is_wanted(record.fd)
        };
        // Numbers are dense: the lowest free one is given out first.
        let count = self.probe.table_stat(pid).map_or(0, |stat| stat.st_size);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let parts = if count < WORTH_TWO {
            1
        } else {
            threads.clamp(1, MOST_PARTS)
        };
        let each = count / u32::try_from(parts).unwrap_or(1);
        let next = AtomicU32::new(0);
        let results = workers::run(parts, || {
            let part = next.fetch_add(1, Ordering::Relaxed);
            let is_last = usize::try_from(part).is_ok_and(|part| part + 1 >= parts);
            let end = if is_last { Fd::MAX } else { (part + 1) * each };
            self.walk_part(kernel, (part, part * each..end), each, &is_its)
        });
        join(pid, count, results)
    }

    /// The numbers of this range, by a program of its own.
    fn walk_part(
        &self,
        kernel: &KernelReader,
        (part, range): (u32, Range<Fd>),
        count: u32,
        is_its: &impl Fn(&Record<'_>) -> bool,
    ) -> (u32, Result<TableDraft, WalkFailure>) {
        let mut table = TableDraft::new(self.pid);
        table.entries.reserve(usize::try_from(count).unwrap_or(0));
        let walked = || {
            let mut records = kernel
                .records_of(part, self.pid, range)
                .ok_or(WalkFailure::Walk)?;
            let mut chunk = Vec::new();
            while records
                .next_chunk(&mut chunk)
                .map_err(|_error| WalkFailure::Walk)?
            {
                self.add(&mut table, &chunk, is_its)
                    .map_err(WalkFailure::Table)?;
            }
            Ok(())
        };
        let end = walked();
        (part, end.map(|()| table))
    }

    fn dir(&self) -> Result<&TableDir, Errno> {
        let open = || match self.base {
            Base::Open(base) => self.probe.table_dir(self.pid, base),
            Base::Later(start_ticks) => {
                let base = self.probe.reopen_process(self.pid, start_ticks)?;
                self.probe.table_dir(self.pid, &base)
            }
        };
        self.dir.get_or_init(open).as_ref().map_err(|error| *error)
    }

    /// Adds the descriptors of these records, ascending as they are.
    pub(super) fn add(
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
                    let shared = record.is_shared().then_some((record.fd, record.file));
                    table.shared.extend(shared);
                }
                None => unclear.push(record.fd),
            }
        }
        if !unclear.is_empty() {
            self.add_unclear(table, &unclear)?;
            table.by_proc.append(&mut unclear);
            table.entries[first..].sort_by_key(|entry| entry.fd);
        }
        Ok(())
    }

    /// Adds numbers that their records do not determine.
    fn add_unclear(&self, table: &mut TableDraft, unclear: &[Fd]) -> Result<(), Errno> {
        match self.dir() {
            Ok(dir) => table.absorb(&mut dir.read(unclear)),
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
    pub(super) fn finish(&self, mut table: TableDraft) -> TableDraft {
        table.by_kernel = true;
        pass::run_open(&mut table, Needs::Table, &|| {
            self.dir().ok().map(TableDir::as_fd)
        });
        table
    }
}
