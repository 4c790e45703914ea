//! One process's table from its records, and from `/proc` where that has more.

use std::os::fd::OwnedFd;
use std::sync::{OnceLock, mpsc};

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
/// From this many on, a second thread does.
const WORTH_A_THREAD: usize = 2048;
/// So many chunks of records are passed on at once: to wake a thread takes as long as to read one.
const BATCH: usize = 4;
/// So many of these may wait.
const AHEAD: usize = 8;

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

impl From<Errno> for WalkFailure {
    fn from(_: Errno) -> Self {
        Self::Walk
    }
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
        let count = self.probe.table_stat(pid).map_or(0, |stat| stat.st_size);
        let count = usize::try_from(count).unwrap_or(0);
        let records = kernel.records_of(pid)?;
        let mut table = TableDraft::new(pid);
        table.entries.reserve(count);
        let walked = if count < WORTH_A_THREAD || threads < 2 {
            self.add_all(&mut table, records, &is_its)
        } else {
            self.add_beside(&mut table, records, &is_its)
        };
        match walked {
            Ok(()) => (table.listed > 0).then_some(Ok(table)),
            Err(WalkFailure::Walk) => None,
            Err(WalkFailure::Table(error)) => Some(Err(error)),
        }
    }

    /// Adds the descriptors of all records.
    fn add_all(
        &self,
        table: &mut TableDraft,
        mut records: RecordStream<'_>,
        is_its: &impl Fn(&Record<'_>) -> bool,
    ) -> Result<(), WalkFailure> {
        let mut chunk = Vec::new();
        while records.next_chunk(&mut chunk)? {
            self.add(table, &chunk, is_its)
                .map_err(WalkFailure::Table)?;
        }
        Ok(())
    }

    /// The same while another core reads: both take about as long. Two walks over one table would
    /// wait for each other, because the kernel locks it for each descriptor.
    fn add_beside(
        &self,
        table: &mut TableDraft,
        mut records: RecordStream<'_>,
        is_its: &impl Fn(&Record<'_>) -> bool,
    ) -> Result<(), WalkFailure> {
        let (sender, batches) = mpsc::sync_channel::<[Vec<u8>; BATCH]>(AHEAD);
        let (returned, used) = mpsc::channel::<[Vec<u8>; BATCH]>();
        let read = move || -> Result<(), WalkFailure> {
            loop {
                let mut batch = used.try_recv().unwrap_or_default();
                let mut is_over = false;
                for chunk in &mut batch {
                    is_over = is_over || !records.next_chunk(chunk)?;
                    if is_over {
                        chunk.clear();
                    }
                }
                // Nobody receives after a failure.
                if sender.send(batch).is_err() || is_over {
                    return Ok(());
                }
            }
        };
        let (read, added) = workers::beside(Some(read), || {
            for batch in batches {
                for chunk in &batch {
                    self.add(table, chunk, is_its).map_err(WalkFailure::Table)?;
                }
                // The reader may have finished.
                drop(returned.send(batch));
            }
            Ok(())
        });
        // Without a thread nothing was read.
        added.and(read.unwrap_or(Err(WalkFailure::Walk)))
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
