//! Walks over all tables, on several cores: each has its own part of the processes.

use std::os::fd::AsFd as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use fdguard_core::snapshot::Process;
use fdguard_core::workload::Workload;
use fdguard_core::{Pid, Text};
use fdguard_proc::{cmdline, status::ProcStatus};
use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;

use super::super::process::Basics;
use super::super::snapshot::ProcessDraft;
use super::super::table::TableDraft;
use super::super::{Probe, files};
use super::common::CommonValues;
use super::process::{CgroupKey, ExeKey, ProcessRecord};
use super::record::{Record, Tail};
use super::table::TableReader;
use super::{KernelReader, MOST_PARTS};
use crate::workers;

impl Probe {
    /// The wanted processes, as far as the kernel describes them and their tables completely. The
    /// others must be read through `/proc`.
    pub(in super::super) fn drafts_by_walk(
        &self,
        kernel: &KernelReader,
        wanted: &[Pid],
        threads: usize,
    ) -> FxHashMap<Pid, ProcessDraft> {
        let shared = Shared {
            probe: self,
            wanted: wanted.iter().copied().collect(),
            executables: CommonValues::default(),
            workloads: CommonValues::default(),
            has_first_users: OnceLock::new(),
        };
        let threads = threads.clamp(1, MOST_PARTS);
        let parts = 1 << threads.ilog2();
        let next = AtomicU32::new(0);
        let drafts = workers::run(1 << threads.ilog2(), || {
            let part = next.fetch_add(1, Ordering::Relaxed);
            let mut open = OpenProcess::new(&shared);
            // A walk that cannot begin or breaks off leaves the rest to `/proc`.
            let _end = open.walk(kernel, (part, parts));
            open.drafts
        });
        let drafts = drafts.into_iter().flatten();
        drafts.map(|draft| (draft.pid, draft)).collect()
    }
}

/// What the parts of a walk share.
struct Shared<'a> {
    probe: &'a Probe,
    wanted: FxHashSet<Pid>,
    executables: CommonValues<ExeKey, Option<Text>>,
    workloads: CommonValues<CgroupKey, Option<Workload>>,
    /// Whether users have the same numbers here as in the first user namespace.
    has_first_users: OnceLock<bool>,
}

/// The process whose records are arriving, and the completed ones.
struct OpenProcess<'a> {
    shared: &'a Shared<'a>,
    current: Option<Current<'a>>,
    drafts: Vec<ProcessDraft>,
    buffer: Vec<u8>,
}

struct Current<'a> {
    pid: Pid,
    start_ticks: u64,
    process: ProcessRecord,
    reader: TableReader<'a>,
    table: TableDraft,
}

impl<'a> OpenProcess<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        Self {
            shared,
            current: None,
            drafts: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Reads one part of the processes.
    fn walk(&mut self, kernel: &KernelReader, (part, parts): (u32, u32)) -> Result<(), Errno> {
        let records = kernel.processes(part, parts);
        let mut records = records.ok_or(Errno::NOSYS)?;
        let mut chunk = Vec::new();
        while records.next_chunk(&mut chunk)? {
            self.take(&chunk);
        }
        Ok(())
    }

    /// Takes a chunk of records.
    fn take(&mut self, mut rest: &[u8]) {
        while let Some((_, is_descriptor, _)) = Record::peek(rest) {
            if is_descriptor {
                rest = self.take_descriptors(rest);
                continue;
            }
            let Some((record, tail)) = Record::take(rest) else {
                return;
            };
            self.take_edge(&record);
            rest = tail;
        }
    }

    /// Takes the records of descriptors at the start; returns those after them.
    fn take_descriptors<'b>(&mut self, records: &'b [u8]) -> &'b [u8] {
        let mut rest = records;
        let pid = self.current.as_ref().map(|current| current.pid);
        while let Some((of, true, tail)) = Record::peek(rest)
            && (pid.is_none() || pid == Some(of))
        {
            rest = tail;
        }
        if rest.len() == records.len() {
            // Descriptors of another process without its record: both are left to `/proc`.
            self.current = None;
            return rest;
        }
        let run = &records[..records.len() - rest.len()];
        if let Some(current) = &mut self.current
            && current.add(run).is_err()
        {
            self.current = None;
        }
        rest
    }

    /// A process begins, or is complete.
    fn take_edge(&mut self, record: &Record<'_>) {
        let (pid, start_ticks) = (record.pid, record.start_ticks());
        let is_current =
            |current: &Current<'_>| (current.pid, current.start_ticks) == (pid, start_ticks);
        match record.tail {
            // The same once more: another walk was read meanwhile.
            Tail::Process(_) if self.current.as_ref().is_some_and(is_current) => {}
            Tail::Process(bytes) => {
                let process = ProcessRecord::read(bytes).filter(|_| self.is_wanted(pid));
                let probe = self.shared.probe;
                self.current = process.map(|process| Current {
                    pid,
                    start_ticks,
                    process,
                    reader: TableReader::later(probe, pid, start_ticks),
                    table: TableDraft::new(pid),
                });
            }
            Tail::Complete => {
                let current = self.current.take().filter(is_current);
                let draft = current.and_then(|current| self.finish(current));
                self.drafts.extend(draft);
            }
            _ => {}
        }
    }

    fn is_wanted(&self, pid: Pid) -> bool {
        self.shared.wanted.contains(&pid)
    }

    fn finish(&mut self, current: Current<'_>) -> Option<ProcessDraft> {
        let taken_at = Timestamp::now();
        // It was alive after its last record, but maybe not while the rest was read.
        if current.table.count() != current.table.listed {
            return None;
        }
        let basics = self.shared.basics(&current, &mut self.buffer).ok()?;
        let mut table = current.reader.finish(current.table);
        table.netns = current
            .process
            .netns
            .map(|ino| format!("net:[{ino}]").into_bytes());
        Some(ProcessDraft::with_table(basics, taken_at, table))
    }
}

impl Current<'_> {
    fn add(&mut self, records: &[u8]) -> Result<(), Errno> {
        self.reader.add(&mut self.table, records, &|_| true)
    }
}

impl Shared<'_> {
    /// What the small files of `/proc/PID` show: from the record, or read once for all processes
    /// that have it in common.
    fn basics(&self, current: &Current<'_>, buffer: &mut Vec<u8>) -> Result<Basics, Errno> {
        let probe = self.probe;
        let Current {
            pid,
            start_ticks,
            process,
            ..
        } = current;
        let path = |name: &str| format!("{pid}/{name}");
        let read_exe = || {
            files::read_link(&probe.proc, path("exe"))
                .ok()
                .map(Text::from)
        };
        let workload = self.workloads.get(process.cgroups, || probe.workload(*pid));
        let container = workload.as_ref().and_then(|one| one.container.as_ref());
        let arguments = files::read_into(&probe.proc, path("cmdline"), buffer)?;
        let process = Process {
            pid: *pid,
            start_time: probe.start_time(*start_ticks),
            start_ticks: Some(*start_ticks),
            comm: Text::from(process.comm()),
            exe: self.executables.get(process.exe, read_exe),
            cmdline: cmdline::arguments(arguments).map(Text::from).collect(),
            uid: self.user_of(*pid, process),
            ppid: Some(process.ppid),
            pgid: Some(process.pgid),
            threads: Some(u64::from(process.threads)),
            children: None,
            zombies: None,
            container: container.map(|container| container.id.clone()),
            workload,
            ns_pid: Some(process.ns_pid).filter(|inner| inner != pid),
            cohorts: Vec::new(),
        };
        Ok(Basics {
            process,
            limits: current.process.limits,
            table_size: Some(u64::from(current.process.table_size)),
        })
    }

    fn user_of(&self, pid: Pid, process: &ProcessRecord) -> Option<u32> {
        let proc = self.probe.proc.as_fd();
        let is_first = || {
            let map = files::read(proc, c"self/uid_map").unwrap_or_default();
            map.split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty())
                .eq([&b"0"[..], b"0", b"4294967295"])
        };
        if *self.has_first_users.get_or_init(is_first) {
            return Some(process.uid);
        }
        let status = files::read(proc, format!("{pid}/status")).ok()?;
        ProcStatus::parse(&status).uid
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use rustc_hash::FxHashSet;

    use super::super::record::{HEAD, at};
    use super::{CommonValues, OpenProcess, Shared};
    use crate::Probe;

    const PIPE: u32 = 0;
    const PROCESS: u32 = 10;
    const COMPLETE: u32 = 11;

    /// A record of a pipe, or the first or last record of a process.
    fn record(pid: u32, kind: u32) -> Vec<u8> {
        let tail = if kind == PROCESS { 104 } else { 0 };
        let mut bytes = vec![0; HEAD + tail];
        let length = u32::try_from(bytes.len()).unwrap();
        let words = [
            (at::LENGTH, length),
            (at::PID, pid),
            (at::KIND, kind),
            (at::MAGIC, 0x5049_5045),
        ];
        for (at, word) in words {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// The processes that these chunks complete, with the number of their descriptors.
    fn completed(chunks: &[&[(u32, u32)]]) -> Vec<(u32, Option<u64>)> {
        let own = std::process::id();
        let probe = Probe::new().unwrap();
        let shared = Shared {
            probe: &probe,
            wanted: FxHashSet::from_iter([own]),
            executables: CommonValues::default(),
            workloads: CommonValues::default(),
            has_first_users: OnceLock::new(),
        };
        let mut open = OpenProcess::new(&shared);
        for chunk in chunks {
            let records = chunk.iter().map(|(pid, kind)| record(*pid, *kind));
            open.take(&records.collect::<Vec<_>>().concat());
        }
        let drafts = open.drafts.iter();
        drafts.map(|draft| (draft.pid, draft.count())).collect()
    }

    #[test]
    fn a_process_counts_when_its_end_came() {
        let own = std::process::id();
        let (first, pipe, last) = ((own, PROCESS), (own, PIPE), (own, COMPLETE));
        assert_eq!(completed(&[&[first, pipe, pipe, last]]), [(own, Some(2))]);
        let parts: &[&[_]] = &[&[first, pipe], &[pipe, pipe], &[last]];
        assert_eq!(completed(parts), [(own, Some(3))]);
        // It ended, or the walk did.
        assert_eq!(completed(&[&[first, pipe]]), []);
        assert_eq!(
            completed(&[&[first, pipe], &[(1, PROCESS), (1, PIPE), last]]),
            []
        );
        // Without its beginning, some may be missing.
        assert_eq!(completed(&[&[pipe, last]]), []);
        assert_eq!(completed(&[&[first, pipe, (1, PIPE), pipe, last]]), []);
        // Not wanted.
        assert_eq!(completed(&[&[(1, PROCESS), (1, PIPE), (1, COMPLETE)]]), []);
        // The program was used for another walk meanwhile.
        assert_eq!(
            completed(&[&[first, pipe], &[first, pipe, last]]),
            [(own, Some(2))]
        );
    }
}
