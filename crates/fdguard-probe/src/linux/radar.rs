//! The radar: every process on the host, a few system calls each, no privilege.

use std::collections::HashMap;
use std::os::fd::AsFd;

use fdguard_core::host::{HostRow, HostView};
use fdguard_core::{Gap, Pid, Text};
use jiff::Timestamp;
use rustix::fs::AtFlags;

use super::{Probe, ceilings, files, rlimit};
use crate::Error;
use crate::parse::{limits, stat::Stat, status::Status};
use crate::workers::{self, Queue};

/// Processes per grab of a worker.
const CHUNK: usize = 64;

/// Looks at the whole host again and again, reading again only what can have changed.
#[derive(Debug, Default)]
pub struct Radar {
    known: HashMap<Pid, Known>,
    looks: u64,
}

/// A row and the inode of its `fd` directory: the kernel makes a new inode for a new process, so an
/// equal one proves that this is the same process, in the same call that gives the count.
#[derive(Clone, Debug)]
struct Known {
    inode: u64,
    row: HostRow,
}

/// Limits and table sizes change rarely: they are read again every so many looks, spread by pid.
const REREAD_EVERY: u64 = 16;

impl Radar {
    /// A radar that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One look at every process.
    pub fn look(&mut self, probe: &Probe) -> Result<HostView, Error> {
        let pids = probe.pids()?;
        let looked = self.look_at(probe, &pids);
        self.looks += 1;
        self.known = looked
            .iter()
            .map(|known| (known.row.pid, known.clone()))
            .collect();
        let rows: Vec<HostRow> = looked.into_iter().map(|known| known.row).collect();
        let gaps = count_gap(&rows).into_iter().collect();
        Ok(HostView {
            taken_at: Some(Timestamp::now()),
            rows,
            host: ceilings::read(probe.proc.as_fd()),
            gaps,
        })
    }

    fn look_at(&self, probe: &Probe, pids: &[Pid]) -> Vec<Known> {
        let queue = Queue::new(pids.len(), CHUNK);
        let parts = workers::run(workers::cores().min(pids.len() / CHUNK + 1), || {
            let mut part = Vec::new();
            let mut buffer = Vec::new();
            while let Some(range) = queue.take() {
                let rows = pids[range]
                    .iter()
                    .filter_map(|pid| self.row(probe, *pid, &mut buffer));
                part.extend(rows);
            }
            part
        });
        let mut all: Vec<Known> = parts.into_iter().flatten().collect();
        all.sort_unstable_by_key(|known| known.row.pid);
        all
    }

    fn row(&self, probe: &Probe, pid: Pid, buffer: &mut Vec<u8>) -> Option<Known> {
        let (inode, count) = probe.count_by_size(pid)?;
        match self.known.get(&pid) {
            Some(known) if known.inode == inode && probe.real => {
                let mut row = known.row.clone();
                let grown = count > row.count;
                row.count = count;
                if row.start_ticks.is_none() {
                    probe.identify(&mut row, buffer)?;
                }
                if grown || (self.looks + u64::from(pid)).is_multiple_of(REREAD_EVERY) {
                    probe.reread(&mut row, buffer)?;
                }
                Some(Known { inode, row })
            }
            _ => {
                let row = probe.first_look(pid, count, buffer)?;
                Some(Known { inode, row })
            }
        }
    }
}

impl Probe {
    /// Inode and size of the descriptor directory; on an old kernel the count takes a listing.
    fn count_by_size(&self, pid: Pid) -> Option<(u64, Option<u64>)> {
        let path = fd_path(pid);
        let stat = rustix::fs::statat(&self.proc, &path[..], AtFlags::empty()).ok()?;
        let count = if self.sizes {
            u64::try_from(stat.st_size).ok()
        } else {
            let dir = files::open_dir_at(&self.proc, &path[..]);
            let numbers = dir.and_then(|dir| files::numbers(dir.as_fd()));
            numbers.ok().map(|numbers| numbers.len() as u64)
        };
        Some((stat.st_ino, count))
    }

    /// What one file tells of a process that was not known before; nothing for kernel threads.
    fn first_look(&self, pid: Pid, count: Option<u64>, buffer: &mut Vec<u8>) -> Option<HostRow> {
        let mut row = HostRow {
            pid,
            count,
            ..HostRow::default()
        };
        self.reread(&mut row, buffer)?;
        Some(row)
    }

    /// The start time is the identity, which a single look has no use for: it is read by the second.
    fn identify(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Option<()> {
        let bytes = files::read_into(&self.proc, format!("{}/stat", row.pid), buffer).ok()?;
        row.start_ticks = Some(Stat::parse(bytes)?.start_ticks);
        Some(())
    }

    fn reread(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Option<()> {
        let bytes = files::read_into(&self.proc, format!("{}/status", row.pid), buffer).ok()?;
        let status = Status::parse(bytes);
        if status.is_kernel_thread() {
            return None;
        }
        row.comm = Text::from(status.unescaped_name());
        row.uid = status.uid;
        row.ppid = status.ppid;
        row.zombie = matches!(status.state, Some(b'Z' | b'X'));
        row.table_size = status.fd_size.filter(|size| *size > 0);
        let by_call = if self.real { rlimit::of(row.pid) } else { None };
        row.limits = match by_call {
            Some(limits) => limits,
            None => files::read_into(&self.proc, format!("{}/limits", row.pid), buffer)
                .map_or_else(|_| row.limits, limits::open_files),
        };
        Some(())
    }
}

fn fd_path(pid: Pid) -> String {
    format!("{pid}/fd")
}

fn count_gap(rows: &[HostRow]) -> Option<Gap> {
    let uncounted = rows.iter().filter(|row| row.count.is_none()).count();
    (uncounted > 0).then(|| {
        Gap::new(
            format!("the number of descriptors of {uncounted} processes"),
            "this kernel tells it only to who may list them (before Linux 6.2)",
            "run as root, or on Linux 6.2 or later",
        )
    })
}
