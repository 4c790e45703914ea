//! The radar: every process on the host, a few system calls each, no privilege.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Mutex;

use fdguard_core::host::{HostRow, HostView};
use fdguard_core::units::counted;
use fdguard_core::{Gap, Pid, Text};
use fdguard_proc::{comm, stat::ProcStat, status::ProcStatus};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::files::Listing;
use super::{Probe, ceilings, files};
use crate::Error;
use crate::workers;

/// Processes per batch of a worker.
const CHUNK: usize = 64;

/// Scans the whole host repeatedly, reading again only what can have changed.
#[derive(Debug, Default)]
pub struct Radar {
    known: FxHashMap<Pid, KnownProcess>,
    looks: u64,
    depth: Depth,
    /// Whether it leaves the other cores to whoever needs them.
    is_background: bool,
}

/// How much is read about each process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Depth {
    /// Everything, start times too.
    #[default]
    Whole,
    /// For a single sample: no start times, which only matter between samples.
    Single,
    /// For a single scan of many processes: only what is cheap for processes that hold little.
    Crowd,
}

/// From this many processes on, a single scan uses [`Depth::Crowd`].
const CROWD: usize = 1000;
/// A process that holds fewer has usually never held more.
const LITTLE: u64 = 64;

/// A row and the inode of its `fd` directory: the kernel creates a new inode for a new process, so
/// an equal one proves that this is the same process, in the same call that returns the count.
#[derive(Clone, Debug)]
struct KnownProcess {
    inode: u64,
    row: HostRow,
    /// Whether this is its first scan: it may be between its fork and its exec.
    is_new: bool,
}

/// Names, limits and table sizes change rarely: they are read again every this many scans, spread
/// by pid.
const REREAD_EVERY: u64 = 16;

impl Radar {
    /// A radar that has scanned nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A radar for scans that nobody waits for, on one core: threads cost more than they do.
    #[must_use]
    pub fn background() -> Self {
        Self {
            is_background: true,
            ..Self::default()
        }
    }

    /// A radar for a single scan: it omits the start times. With more than a thousand processes,
    /// and unless `all` is set, it omits more, and reports that.
    #[must_use]
    pub fn single(all: bool) -> Self {
        Self {
            depth: if all { Depth::Single } else { Depth::Crowd },
            ..Self::default()
        }
    }

    /// One scan of every process.
    pub fn scan(&mut self, probe: &Probe) -> Result<HostView, Error> {
        if self.depth == Depth::Crowd && probe.processes() < CROWD {
            self.depth = Depth::Single;
        }
        let looked = self
            .look_at(probe)
            .map_err(|error| Error::io("list of processes", error))?;
        self.looks += 1;
        if self.depth == Depth::Whole {
            self.known.clear();
            let known = looked.iter().map(|known| (known.row.pid, known.clone()));
            self.known.extend(known);
        }
        let rows: Vec<HostRow> = looked.into_iter().map(|known| known.row).collect();
        let mut gaps: Vec<Gap> = count_gap(&rows).into_iter().collect();
        if self.depth == Depth::Crowd {
            gaps.extend(crowd_gap(&rows));
        }
        gaps.extend(probe.hidden());
        Ok(HostView {
            taken_at: Some(Timestamp::now()),
            rows,
            host: ceilings::read(probe.proc.as_fd()),
            gaps,
        })
    }

    /// Fails only if fdguard itself lacks resources: an incomplete list of processes is not an
    /// answer.
    fn look_at(&self, probe: &Probe) -> Result<Vec<KnownProcess>, Errno> {
        let dir = files::open_dir_at(&probe.proc, c".")?;
        let mut names = vec![MaybeUninit::uninit(); 1 << 13];
        let listing = Mutex::new(Listing::of(dir.as_fd(), &mut names)?);
        let threads = match self.is_background {
            true => 1,
            false => workers::cores().min(probe.processes() / CHUNK + 1),
        };
        let parts = workers::run(threads, || {
            let mut part = Vec::new();
            let mut buffer = Vec::new();
            let mut pids = Vec::with_capacity(CHUNK);
            loop {
                if !files::take_shared(&listing, CHUNK, &mut pids)? {
                    return Ok(part);
                }
                for pid in &pids {
                    match self.row(probe, *pid, &mut buffer) {
                        Ok(known) => part.push(known),
                        Err(error) if files::is_ours(error) => return Err(error),
                        Err(_) => {}
                    }
                }
            }
        });
        let mut all = Vec::new();
        for part in parts {
            all.append(&mut part?);
        }
        all.sort_unstable_by_key(|known: &KnownProcess| known.row.pid);
        Ok(all)
    }

    /// Whether everything must be read again: periodically, for a name that changed at exec, a
    /// parent that exited, a limit that was raised; and when it holds nothing, as when it exits.
    fn is_due(&self, pid: Pid, count: Option<u64>) -> bool {
        count.is_none_or(|count| count == 0)
            || (self.looks + u64::from(pid)).is_multiple_of(REREAD_EVERY)
    }

    fn row(&self, probe: &Probe, pid: Pid, buffer: &mut Vec<u8>) -> Result<KnownProcess, Errno> {
        let (inode, count) = probe.count_by_size(pid)?;
        let known = self
            .known
            .get(&pid)
            .filter(|known| known.inode == inode && probe.real);
        let mut row = match known {
            Some(known) => HostRow {
                count,
                ..known.row.clone()
            },
            None => HostRow {
                pid,
                count,
                ..HostRow::default()
            },
        };
        let is_young = known.is_none_or(|known| known.is_new);
        let grown = known.is_some_and(|known| count > known.row.count);
        let holds_little = count.is_some_and(|count| (1..LITTLE).contains(&count));
        if self.depth == Depth::Crowd && holds_little {
            probe.glance(&mut row, buffer)?;
        } else if is_young || grown || self.is_due(pid, count) {
            probe.reread(&mut row, buffer)?;
        }
        if self.depth == Depth::Whole && row.start_ticks.is_none() {
            probe.identify(&mut row, buffer)?;
        }
        let is_new = known.is_none();
        Ok(KnownProcess { inode, row, is_new })
    }
}

impl Probe {
    /// Approximate number of processes: the directory has a link for each. Only for planning.
    fn processes(&self) -> usize {
        if self.real {
            let links = rustix::fs::fstat(&self.proc).ok().map(|stat| stat.st_nlink);
            return links
                .and_then(|links| usize::try_from(links).ok())
                .unwrap_or(0);
        }
        self.pids().map_or(0, |pids| pids.len())
    }

    /// Inode and size of the descriptor directory; on an old kernel the count requires a listing.
    fn count_by_size(&self, pid: Pid) -> Result<(u64, Option<u64>), Errno> {
        let stat = self.table_stat(pid)?;
        if self.sizes {
            return Ok((stat.st_ino, u64::try_from(stat.st_size).ok()));
        }
        let listed = files::open_dir_at(&self.proc, format!("{pid}/fd"))
            .and_then(|dir| files::numbers(dir.as_fd()));
        match listed {
            Ok(numbers) => Ok((stat.st_ino, Some(numbers.len() as u64))),
            Err(error) if files::is_ours(error) => Err(error),
            Err(_) => Ok((stat.st_ino, None)),
        }
    }

    /// The start time, which with the pid is the identity.
    fn identify(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let bytes = files::read_into(&self.proc, format!("{}/stat", row.pid), buffer)?;
        row.start_ticks = ProcStat::parse(bytes).map(|stat| stat.start_ticks);
        Ok(())
    }

    /// Reads a process from one file; `None` for kernel threads.
    fn reread(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let bytes = files::read_into(&self.proc, format!("{}/status", row.pid), buffer)?;
        let status = ProcStatus::parse(bytes);
        if status.is_kernel_thread() {
            return Err(Errno::SRCH);
        }
        row.comm = Text::from(status.unescaped_name());
        row.uid = status.uid;
        row.ppid = status.ppid.or(row.ppid);
        row.zombie = matches!(status.state, Some(b'Z' | b'X'));
        row.table_size = status.fd_size.filter(|size| *size > 0);
        if row.zombie {
            // Its table is gone: it holds nothing.
            row.count = Some(0);
        }
        self.reread_limits(row, buffer)
    }

    /// Only name and limits, at half the cost.
    fn glance(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let bytes = files::read_into(&self.proc, format!("{}/comm", row.pid), buffer)?;
        row.comm = Text::from(comm::name(bytes));
        self.reread_limits(row, buffer)
    }

    fn reread_limits(&self, row: &mut HostRow, buffer: &mut Vec<u8>) -> Result<(), Errno> {
        let text = (self.proc.as_fd(), format!("{}/limits", row.pid));
        row.limits = match self.limits(row.pid, text, buffer) {
            Err(error) if files::is_ours(error) => return Err(error),
            read => read.unwrap_or(row.limits),
        };
        Ok(())
    }
}

fn crowd_gap(rows: &[HostRow]) -> Option<Gap> {
    let glanced = rows.iter().filter(|row| row.uid.is_none()).count();
    (glanced > 0).then(|| {
        let what = format!(
            "peak, user and parent of {} with fewer than {LITTLE} descriptors",
            counted(glanced as u64, "process")
        );
        let why = format!("a single sample of more than {CROWD} processes omits them");
        Gap::new(what, why, "use --peaks or the live view")
    })
}

fn count_gap(rows: &[HostRow]) -> Option<Gap> {
    let uncounted = rows.iter().filter(|row| row.count.is_none()).count();
    (uncounted > 0).then(|| {
        Gap::new(
            format!(
                "the descriptor count of {}",
                counted(uncounted as u64, "process")
            ),
            "before Linux 6.2 the count is visible only to the process's owner or root",
            "run as root, or on Linux 6.2 or later",
        )
    })
}
