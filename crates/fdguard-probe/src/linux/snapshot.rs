//! Snapshots: what the files of each process show, then what the passes add to it.
//!
//! The stages are types: a number becomes a `RawEntry`, that a `ClassifiedEntry`, those a
//! `TableDraft` in a `ProcessDraft`, and that, after the passes, a [`Snapshot`].

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;

use fdguard_core::snapshot::{Ceilings, Via};
use fdguard_core::{Gap, Pid, Snapshot, Tier};
use fdguard_kernel::DescriptorProgram;
use fdguard_proc::stat::ProcStat;
use jiff::Timestamp;
use rustix::io::Errno;

use super::gaps::{denied_gap, table_gaps};
use super::kernel::KernelReader;
use super::kernel::table::WORTH_A_WALK;
use super::pass::{self, Context, Needs};
use super::process::Basics;
use super::socket::SocketTable;
use super::table::TableDraft;
use super::{Probe, ceilings, files};
use crate::{Error, ProcessReader, workers};

/// From this many processes on, all sockets are requested in advance, and a kernel walk over all
/// tables is worth its start.
const MANY: usize = 64;
/// From this many processes on, one walk over all tables takes less than one for each.
const SEVERAL: usize = 8;

/// How to take a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether to find the holders of the other ends, which requires a search of every process.
    pub peers: bool,
    /// How many threads may read; 0 for as many as there are cores, up to four.
    pub threads: usize,
    /// Whether all tables may be read by a kernel walk.
    pub depth: Depth,
}

/// How several processes are read, where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// By a kernel walk where that is allowed and worthwhile, otherwise through `/proc`.
    #[default]
    Auto,
    /// Only through `/proc`.
    Full,
    /// By a kernel walk wherever that is allowed.
    Kernel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            peers: true,
            threads: 0,
            depth: Depth::Auto,
        }
    }
}

impl Options {
    pub(super) fn threads(self) -> usize {
        match self.threads {
            0 => workers::cores(),
            given => given,
        }
    }

    /// Whether to walk over all tables: for a few processes that takes longer.
    fn wants_whole_walk(self, processes: usize) -> bool {
        match self.depth {
            Depth::Auto => processes >= MANY,
            Depth::Full => false,
            Depth::Kernel => processes >= SEVERAL,
        }
    }

    /// Whether to walk over the table of one process with so many descriptors.
    fn wants_walk(self, descriptors: Option<u64>) -> bool {
        match self.depth {
            Depth::Auto => descriptors.is_some_and(|count| count >= WORTH_A_WALK),
            Depth::Full => false,
            Depth::Kernel => true,
        }
    }
}

/// How the processes of one call are read.
#[derive(Clone, Copy)]
struct Reading<'a> {
    options: Options,
    kernel: &'a KernelReader,
}

/// A process as its own files show it: the passes complete it.
pub(super) struct ProcessDraft {
    pub(super) pid: Pid,
    pub(super) basics: Basics,
    taken_at: Timestamp,
    count: Option<u64>,
    /// Absent if the table may not be listed.
    pub(super) table: Option<TableDraft>,
    gaps: Vec<Gap>,
}

impl ProcessDraft {
    pub(super) fn tier(&self) -> Tier {
        self.table.as_ref().map_or(Tier::Radar, TableDraft::tier)
    }

    /// A process with what was read of its table.
    pub(super) fn with_table(basics: Basics, taken_at: Timestamp, table: TableDraft) -> Self {
        let pid = basics.process.pid;
        let mut gaps = table_gaps(&table);
        // A table in which nothing may be read does not count as a table.
        let all_denied = table.is_empty() && table.denied > 0;
        if all_denied {
            gaps.push(denied_gap(pid, true));
        }
        Self {
            pid,
            basics,
            taken_at,
            count: Some(table.count()),
            table: (!all_denied).then_some(table),
            gaps,
        }
    }

    /// A process whose table may not be listed.
    fn without_table(basics: Basics, taken_at: Timestamp, count: Option<u64>) -> Self {
        let pid = basics.process.pid;
        Self {
            pid,
            basics,
            taken_at,
            count,
            table: None,
            gaps: vec![denied_gap(pid, count.is_some())],
        }
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> Option<u64> {
        self.count
    }

    /// The finished snapshot.
    fn finish(mut self, host: Ceilings) -> Snapshot {
        let tier = self.tier();
        if let Some(table) = &mut self.table {
            self.gaps.append(&mut table.gaps);
        }
        Snapshot {
            taken_at: self.taken_at,
            tier,
            via: Via::Proc,
            process: self.basics.process,
            limits: self.basics.limits,
            count: self.count,
            table_size: self.basics.table_size,
            host,
            fds: self.table.map(TableDraft::into_entries),
            gaps: self.gaps,
        }
    }
}

impl Probe {
    /// The descriptors of one process.
    pub fn snapshot(&self, pid: Pid, options: Options) -> Result<Snapshot, Error> {
        ProcessReader::snapshot(self, pid, options)
    }

    /// The descriptors of several processes. Each has its own outcome; those that exited meanwhile
    /// are errors.
    pub fn snapshots(&self, pids: &[Pid], options: Options) -> Vec<Result<Snapshot, Error>> {
        let kernel = KernelReader::default();
        let (ahead, read) = self.read_processes(pids, options, &kernel);
        let mut drafts = Vec::with_capacity(read.len());
        let order: Vec<Result<(), Error>> = read
            .into_iter()
            .map(|read| read.map(|draft| drafts.push(draft)))
            .collect();
        let host = self.complete(&mut drafts, options, ahead, &kernel);
        let mut drafts = drafts.into_iter();
        order
            .into_iter()
            .filter_map(|read| match read {
                Ok(()) => drafts.next().map(|draft| Ok(draft.finish(host))),
                Err(error) => Some(Err(error)),
            })
            .collect()
    }

    /// Runs the passes, and reads the limits of the host.
    fn complete(
        &self,
        drafts: &mut [ProcessDraft],
        options: Options,
        ahead: Option<SocketTable>,
        kernel: &KernelReader,
    ) -> Ceilings {
        if drafts.is_empty() {
            return Ceilings::default();
        }
        let offers = if options.peers {
            Needs::Search
        } else {
            Needs::Table
        };
        let user = match drafts {
            [only] => only.basics.process.uid,
            _ => None,
        };
        let context = Context {
            threads: options.threads(),
            ahead: Mutex::new(ahead),
            kernel: (options.depth != Depth::Full).then_some(kernel),
            user,
            ..Context::new(self, offers)
        };
        pass::run(&context, drafts);
        let mut host = ceilings::read(self.proc.as_fd());
        if let Some((instances, watches)) = context.inotify.get() {
            host.inotify_instances.used = Some(*instances);
            host.inotify_watches.used = Some(*watches);
        }
        host
    }

    /// Reads the processes on several cores and, if that is worthwhile, all sockets beside them.
    fn read_processes(
        &self,
        pids: &[Pid],
        options: Options,
        kernel: &KernelReader,
    ) -> (Option<SocketTable>, Vec<Result<ProcessDraft, Error>>) {
        // fdguard itself first, while only the descriptors of this one read are open, and not by a
        // kernel walk, which would show them.
        let own = pids
            .iter()
            .position(|pid| self.real && *pid == std::process::id());
        let in_full = Reading {
            options: Options {
                depth: Depth::Full,
                ..options
            },
            kernel,
        };
        let own = own.map(|at| (at, self.read_process(pids[at], in_full)));
        let mut others = pids.to_vec();
        if let Some((at, _)) = own {
            others.remove(at);
        }
        // A kernel walk describes the sockets itself.
        let by_proc = options.depth == Depth::Full || !DescriptorProgram::is_permitted();
        let ahead = (by_proc && self.wants_sockets_ahead(&others, MANY))
            .then_some(|| SocketTable::by_netlink(None).ok());
        let reading = Reading { options, kernel };
        let (ahead, mut drafts) = workers::beside(ahead, || {
            if self.real && options.wants_whole_walk(others.len()) {
                self.read_by_walk(&others, reading)
            } else {
                self.read_others(&others, reading)
            }
        });
        if let Some((at, draft)) = own {
            drafts.insert(at, draft);
        }
        (ahead.flatten(), drafts)
    }

    /// Reads processes, each by itself.
    fn read_others(&self, pids: &[Pid], reading: Reading<'_>) -> Vec<Result<ProcessDraft, Error>> {
        // A few processes are read one after the other, each on several cores.
        if pids.len() < SEVERAL || reading.options.threads() < 2 {
            let read = |pid: &Pid| self.read_process(*pid, reading);
            return pids.iter().map(read).collect();
        }
        let alone = Reading {
            options: Options {
                threads: 1,
                ..reading.options
            },
            ..reading
        };
        workers::map(pids, 1, |pid| self.read_process(*pid, alone))
    }

    /// Reads processes by walks over all tables, and through `/proc` those that are missing there.
    fn read_by_walk(&self, pids: &[Pid], reading: Reading<'_>) -> Vec<Result<ProcessDraft, Error>> {
        let mut found = self.drafts_by_walk(reading.kernel, pids, reading.options.threads());
        let is_missing = |pid: &Pid| !found.contains_key(pid);
        let missing: Vec<Pid> = pids.iter().copied().filter(is_missing).collect();
        let in_full = Reading {
            options: Options {
                depth: Depth::Full,
                ..reading.options
            },
            ..reading
        };
        let mut rest = self.read_others(&missing, in_full).into_iter();
        pids.iter()
            .filter_map(|pid| found.remove(pid).map(Ok).or_else(|| rest.next()))
            .collect()
    }

    /// Reads one process, by the kernel if that is worthwhile and allowed.
    fn read_process(&self, pid: Pid, reading: Reading<'_>) -> Result<ProcessDraft, Error> {
        let base = self.open_process(pid)?;
        let basics = self.basics(pid, base.as_fd())?;
        let taken_at = Timestamp::now();
        let table = self
            .read_by_kernel(pid, &base, &basics, reading)
            .unwrap_or_else(|| self.read_table(pid, &base, reading.options.threads()));
        match table {
            Ok(table) => {
                // A walk that meets the end of a process is shorter, and does not know it.
                if !table.is_complete() || table.tier() == Tier::Kernel {
                    self.still_there(pid, &base)?;
                }
                let table = table.with_netns(base.as_fd());
                Ok(ProcessDraft::with_table(basics, taken_at, table))
            }
            Err(error) if files::is_gone(error) => Err(Error::Vanished(pid)),
            Err(error) if files::is_ours(error) => {
                Err(Error::io(format!("descriptors of process {pid}"), error))
            }
            Err(_) => {
                // The files of a process that ends belong to root.
                self.still_there(pid, &base)?;
                let count = self.count_of(&base);
                Ok(ProcessDraft::without_table(basics, taken_at, count))
            }
        }
    }

    /// The table by a kernel walk; `None` if there is none for this process.
    fn read_by_kernel(
        &self,
        pid: Pid,
        base: &OwnedFd,
        basics: &Basics,
        reading: Reading<'_>,
    ) -> Option<Result<TableDraft, Errno>> {
        let start_ticks = basics.process.start_ticks;
        // Without a count, the size of its table is the most that it can have.
        let most = self.count_of(base).or(basics.table_size);
        if !self.real || !reading.options.wants_walk(most) {
            return None;
        }
        let threads = match most {
            Some(count) if count >= WORTH_A_WALK => reading.options.threads(),
            _ => 1,
        };
        self.table_by_walk(reading.kernel, (pid, start_ticks?), base, threads)
    }

    /// The table by `/proc`.
    fn read_table(&self, pid: Pid, base: &OwnedFd, threads: usize) -> Result<TableDraft, Errno> {
        let dir = self.table_dir(pid, base)?;
        let mut table = dir.read_all(threads)?;
        if let Some(error) = table.trouble {
            return Err(error);
        }
        pass::run_open(&mut table, Needs::Table, &|| self.real.then(|| dir.as_fd()));
        Ok(table)
    }

    /// The count without listing: the size of the directory (Linux 6.2 and later, no privilege).
    fn count_of(&self, base: &OwnedFd) -> Option<u64> {
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
        match ProcStat::parse(&bytes) {
            Some(stat) if !stat.is_ending() => Ok(()),
            _ => Err(Error::Vanished(pid)),
        }
    }
}
