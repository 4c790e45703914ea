//! The radar: every process on the host, a few system calls each, no privilege.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fdguard_core::host::{HostRow, HostView};
use fdguard_core::{Gap, Pid, Text};
use jiff::Timestamp;
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::{Probe, ceilings, files};
use crate::Error;
use crate::parse::{limits, stat::Stat, status::Status};

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

/// Names, limits and table sizes change rarely: read again every so many looks, spread by pid.
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
        let looked = self
            .look_at(probe, &pids)
            .map_err(|error| Error::io("every process", error))?;
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

    /// Fails only where we have no room ourselves: fewer processes than there are is no answer.
    fn look_at(&self, probe: &Probe, pids: &[Pid]) -> Result<Vec<Known>, Errno> {
        let next = AtomicUsize::new(0);
        let all = Mutex::new(Ok(Vec::with_capacity(pids.len())));
        let work = || {
            let mut part = Vec::new();
            let mut buffer = Vec::new();
            let mut trouble = None;
            while trouble.is_none() {
                let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                let Some(rest) = pids.get(start..).filter(|rest| !rest.is_empty()) else {
                    break;
                };
                for pid in &rest[..CHUNK.min(rest.len())] {
                    match self.row(probe, *pid, &mut buffer) {
                        Ok(known) => part.push(known),
                        Err(error) if files::is_ours(error) => trouble = Some(error),
                        Err(_) => {}
                    }
                }
            }
            let mut all = all
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            match (trouble, &mut *all) {
                (Some(error), _) => *all = Err(error),
                (None, Ok(rows)) => rows.append(&mut part),
                (None, Err(_)) => {}
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(4));
        std::thread::scope(|scope| {
            for _ in 1..cores.min(pids.len() / CHUNK + 1) {
                drop(std::thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        let mut all = all
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)?;
        all.sort_unstable_by_key(|known| known.row.pid);
        Ok(all)
    }

    /// Whether everything is to be read again: now and then, for a name that changed at exec, a
    /// parent that ended, a limit that was raised; and when nothing is held, as at its end.
    fn is_due(&self, pid: Pid, count: Option<u64>) -> bool {
        count.is_none_or(|count| count == 0)
            || (self.looks + u64::from(pid)).is_multiple_of(REREAD_EVERY)
    }

    fn row(&self, probe: &Probe, pid: Pid, buffer: &mut Vec<u8>) -> Result<Known, Errno> {
        let (inode, count) = probe.count_by_size(pid)?;
        match self.known.get(&pid) {
            Some(known) if known.inode == inode && probe.real && !self.is_due(pid, count) => {
                let mut row = known.row.clone();
                let grown = count > row.count;
                row.count = count;
                if grown {
                    probe.reread(&mut row, buffer)?;
                }
                Ok(Known { inode, row })
            }
            _ => {
                let row = probe.first_look(pid, count, buffer)?;
                Ok(Known { inode, row })
            }
        }
    }
}

impl Probe {
    /// Inode and size of the descriptor directory; on an old kernel the count takes a listing.
    fn count_by_size(&self, pid: Pid) -> Result<(u64, Option<u64>), Errno> {
        let path = fd_path(pid);
        let stat = rustix::fs::statat(&self.proc, &path[..], AtFlags::empty())?;
        let size = u64::try_from(stat.st_size)
            .ok()
            .filter(|size| self.real && *size > 0);
        let count = match size {
            Some(size) => Some(size),
            None => match files::open_dir_at(&self.proc, &path[..]) {
                Ok(dir) => files::numbers(dir.as_fd()).ok().map(|fds| fds.len() as u64),
                Err(error) if files::is_ours(error) => return Err(error),
                Err(_) => self.tells_sizes().then_some(0),
            },
        };
        Ok((stat.st_ino, count))
    }

    /// Everything about a process that was not known before; nothing for kernel threads.
    fn first_look(
        &self,
        pid: Pid,
        count: Option<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<HostRow, Errno> {
        let bytes = files::read_into(&self.proc, format!("{pid}/stat"), buffer)?;
        let stat = Stat::parse(bytes).filter(|stat| !stat.kernel_thread);
        let stat = stat.ok_or(Errno::SRCH)?;
        let zombie = stat.is_zombie();
        let mut row = HostRow {
            pid,
            ppid: Some(stat.ppid),
            start_ticks: Some(stat.start_ticks),
            comm: Text::from(stat.comm),
            zombie,
            // A zombie's table is gone: it holds nothing.
            count: if zombie { Some(0) } else { count },
            ..HostRow::default()
        };
        self.reread(&mut row, buffer)?;
        Ok(row)
    }

    fn reread(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let status = files::read_into(&self.proc, format!("{}/status", row.pid), buffer)?;
        let status = Status::parse(status);
        row.uid = status.uid;
        row.ppid = status.ppid.or(row.ppid);
        row.table_size = status.fd_size.filter(|size| *size > 0);
        match files::read_into(&self.proc, format!("{}/limits", row.pid), buffer) {
            Ok(bytes) => row.limits = limits::open_files(bytes),
            Err(error) if files::is_ours(error) => return Err(error),
            Err(_) => {}
        }
        Ok(())
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
