//! A process as its own files show it, before the rest of the system is queried.

use std::os::fd::{AsFd as _, OwnedFd};

use fdguard_core::snapshot::{Ceilings, Via};
use fdguard_core::{Gap, Pid, Snapshot, Tier};
use jiff::Timestamp;
use rustix::io::Errno;

use super::gaps::{denied_gap, table_gaps};
use super::kernel::walk::Walk;
use super::process::Basics;
use super::table::Table;
use super::{Probe, epoll, files};
use crate::{Error, sqlite, workers};

/// A process that was read, before the rest of the system was queried.
pub(super) struct Draft {
    pub(super) pid: Pid,
    pub(super) basics: Basics,
    pub(super) taken_at: Timestamp,
    pub(super) count: Option<u64>,
    /// Absent if the table may not be listed.
    pub(super) table: Option<Table>,
    pub(super) netns: Option<Vec<u8>>,
    pub(super) gaps: Vec<Gap>,
}

impl Draft {
    /// The finished snapshot.
    pub(super) fn into_snapshot(self, host: Ceilings) -> Snapshot {
        Snapshot {
            taken_at: self.taken_at,
            tier: match &self.table {
                Some(table) if table.by_kernel => Tier::Kernel,
                Some(_) => Tier::Full,
                None => Tier::Radar,
            },
            via: Via::Proc,
            process: self.basics.process,
            limits: self.basics.limits,
            count: self.count,
            table_size: self.basics.table_size,
            host,
            fds: self.table.map(|table| table.entries),
            gaps: self.gaps,
        }
    }
}

impl Probe {
    /// Reads several processes, on several cores, using the kernel walk if there is one.
    pub(super) fn drafts(
        &self,
        pids: &[Pid],
        threads: usize,
        walk: Option<&Walk>,
    ) -> Vec<Result<Draft, Error>> {
        if pids.len() < 8 || threads < 2 {
            walk.inspect(|walk| walk.make());
            let drafts = pids.iter().map(|pid| self.draft(*pid, threads, walk));
            return drafts.collect();
        }
        let walked = || walk.inspect(|walk| walk.make());
        workers::map_after(walked, pids, 1, |pid| self.draft(*pid, 1, walk))
    }

    /// Reads one process.
    pub(super) fn draft(
        &self,
        pid: Pid,
        threads: usize,
        walk: Option<&Walk>,
    ) -> Result<Draft, Error> {
        let base = self.open_process(pid)?;
        let basics = self.basics(pid, base.as_fd())?;
        let taken_at = Timestamp::now();
        let mut gaps = Vec::new();
        let mut count = None;
        let records = walk.and_then(|walk| walk.take(pid));
        let records = records
            .as_ref()
            .and_then(|records| records.of_start(basics.process.start_ticks));
        let table = match records {
            Some(records) => self.table_by_kernel(pid, &base, records),
            None => self.read_table(pid, &base, threads),
        };
        let table = match table {
            Ok((table, complete)) => {
                if !complete {
                    self.still_there(pid, &base)?;
                }
                count = Some(table.count());
                gaps.extend(table_gaps(&table));
                usable(table)
            }
            Err(error) if files::is_gone(error) => return Err(Error::Vanished(pid)),
            Err(error) if files::is_ours(error) => {
                return Err(Error::io(format!("descriptors of process {pid}"), error));
            }
            Err(_) => None,
        };
        let count = count.or_else(|| self.count_of(&base));
        if table.is_none() {
            gaps.push(denied_gap(pid, count.is_some()));
        }
        let has_sockets = table
            .as_ref()
            .is_some_and(|table| !table.sockets.is_empty());
        let netns = if has_sockets {
            files::read_link(&base, c"ns/net").ok()
        } else {
            None
        };
        Ok(Draft {
            pid,
            basics,
            taken_at,
            count,
            table,
            netns,
            gaps,
        })
    }

    /// The table, and whether every listed number could still be read.
    fn read_table(&self, pid: Pid, base: &OwnedFd, threads: usize) -> Result<(Table, bool), Errno> {
        let dir = self.table_dir(pid, base)?;
        let mut table = dir.read_all(threads)?;
        if let Some(error) = table.trouble {
            return Err(error);
        }
        epoll::mark_ghosts(&mut table.entries, &table.epolls);
        sqlite::classify(&mut table.entries, self.real.then(|| dir.as_fd()));
        let complete = table.count() == table.listed && table.listed > 0;
        Ok((table, complete))
    }

    /// The count without listing: the size of the directory (Linux 6.2 and later, no privilege).
    pub(super) fn count_of(&self, base: &OwnedFd) -> Option<u64> {
        if !self.sizes {
            return None;
        }
        let stat = rustix::fs::statat(base, c"fd", rustix::fs::AtFlags::empty()).ok()?;
        u64::try_from(stat.st_size).ok()
    }

    /// A process that exited while it was read gives no partial snapshot.
    fn still_there(&self, pid: Pid, base: &OwnedFd) -> Result<(), Error> {
        let bytes = match files::read(base, c"stat") {
            Err(error) if files::is_ours(error) => {
                return Err(Error::io(format!("stat of process {pid}"), error));
            }
            read => read.unwrap_or_default(),
        };
        match fdguard_proc::stat::ProcStat::parse(&bytes) {
            Some(stat) if !stat.is_ending() => Ok(()),
            _ => Err(Error::Vanished(pid)),
        }
    }
}

/// A table in which nothing may be read does not count as a table.
fn usable(table: Table) -> Option<Table> {
    let all_denied = table.entries.is_empty() && table.denied > 0;
    (!all_denied).then_some(table)
}
