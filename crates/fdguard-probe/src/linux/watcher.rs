//! Watches one process: a tick without changes costs one system call.

use std::cell::RefCell;
use std::os::fd::{AsFd as _, OwnedFd};

use fdguard_core::snapshot::{Ceilings, Process};
use fdguard_core::timeline::{ChildCount, Look, LookChange, Sighting};
use fdguard_core::{Class, Fd, FdEntry, Gap, Pid, Text, Tier};
use fdguard_proc::comm;
use fdguard_proc::stat::ProcStat;
use rustix::fs::AtFlags;
use rustix::path::DecInt;

use super::cache::{CachedDetail, DescriptorCache};
use super::gaps::denied_gap;
use super::kernel::KernelReader;
use super::pass::{self, Context, Needs};
use super::process::gone_or;
use super::snapshot::Options;
use super::table::{TableDir, TableDraft};
use super::{Probe, cache, ceilings, files};
use crate::Error;

/// From this many new descriptors on, loading a program into the kernel to read them takes less
/// than reading them one by one.
const MANY: usize = 2048;

/// The result of one tick.
#[derive(Debug, Default, PartialEq)]
pub struct WatcherTick {
    /// Number of descriptors now.
    pub count: u64,
    /// Whether the table was listed; if not, only the count was read.
    pub listed: bool,
    /// New descriptors: at numbers that were free, or were reused.
    pub opened: Vec<FdEntry>,
    /// Numbers whose descriptor is gone. A reused one is also among the opened.
    pub closed: Vec<Fd>,
    /// The same descriptors, but of another class or name than before.
    pub changed: Vec<FdEntry>,
}

impl WatcherTick {
    /// What a timeline keeps of it; `None` if the table was not listed.
    #[must_use]
    pub fn change(&self) -> Option<LookChange> {
        let sightings = |entries: &[FdEntry]| entries.iter().map(Sighting::from).collect();
        self.listed.then(|| LookChange {
            opened: sightings(&self.opened),
            closed: self.closed.clone(),
            changed: sightings(&self.changed),
        })
    }
}

/// Watches the table of one process. An equal count can hide a replacement: callers that must know
/// request a listing, and another read of the known descriptors, periodically.
#[derive(Debug)]
pub struct ProcessWatcher<'p> {
    probe: &'p Probe,
    pid: Pid,
    base: OwnedFd,
    /// Absent if the table may not be listed: then there is only a count.
    dir: Option<TableDir>,
    count: Option<u64>,
    known: DescriptorCache,
    /// Whether it was seen to hold an inotify instance.
    watches_files: bool,
    /// Its name at the last identity check.
    name: RefCell<Option<Text>>,
}

impl<'p> ProcessWatcher<'p> {
    /// Starts to watch; the first tick reports everything as opened.
    pub fn new(probe: &'p Probe, pid: Pid) -> Result<Self, Error> {
        let base = probe.open_process(pid)?;
        let dir = match probe.table_dir(pid, &base) {
            // Root without the right to trace can list the numbers but read none of them.
            Ok(_) if may_not_look(&base) => None,
            Ok(dir) => Some(dir),
            Err(error) if files::is_denied(error) => None,
            Err(error) => return Err(gone_or(pid, "descriptors", error)),
        };
        Ok(Self {
            probe,
            pid,
            base,
            dir,
            count: None,
            known: DescriptorCache::default(),
            watches_files: false,
            name: RefCell::new(None),
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// How much it can observe.
    #[must_use]
    pub fn tier(&self) -> Tier {
        if self.dir.is_some() {
            Tier::Full
        } else {
            Tier::Radar
        }
    }

    /// The process, with its children counted.
    pub fn process(&self) -> Result<Process, Error> {
        let mut basics = self.probe.basics(self.pid, self.base.as_fd())?;
        let ticks = basics.process.start_ticks;
        basics.adopt(self.probe.children(self.pid, ticks));
        self.name.replace(Some(basics.process.comm.clone()));
        Ok(basics.process)
    }

    /// The process, if its name changed since the last call: it called exec, or renamed itself.
    #[must_use]
    pub fn renamed(&self) -> Option<Process> {
        let before = self.name.borrow().clone()?;
        let name = files::read(&self.base, c"comm").ok()?;
        let name = comm::name(&name);
        if name == before.as_bytes() || self.is_ending() {
            return None;
        }
        self.process().ok()
    }

    /// Reads what surrounds the table: limits of the process and the host, children.
    pub fn surroundings(&self, look: &mut Look) {
        let limits = (self.base.as_fd(), c"limits");
        look.limits = self.probe.limits(self.pid, limits, &mut Vec::new()).ok();
        look.host = Some(self.ceilings());
        let stat = files::read(&self.base, c"stat").unwrap_or_default();
        let ticks = ProcStat::parse(&stat).map(|stat| stat.start_ticks);
        let children = self.probe.children(self.pid, ticks);
        look.family = children.map(|children| ChildCount {
            children: children.len() as u64,
            zombies: children.iter().filter(|(_, zombie)| *zombie).count() as u64,
        });
    }

    /// A user's inotify use is known only after a search of all processes: that is worthwhile if
    /// the process uses inotify.
    fn ceilings(&self) -> Ceilings {
        let whole = self.watches_files.then(|| {
            let snapshot = self.probe.snapshot(self.pid, Options::default());
            snapshot.ok().map(|snapshot| snapshot.host)
        });
        let whole = whole.flatten();
        whole.unwrap_or_else(|| ceilings::read(self.probe.proc.as_fd()))
    }

    /// Reads only the count.
    pub fn glance(&self) -> Result<WatcherTick, Error> {
        let count = match self.counted() {
            Some(count) => count,
            // An exited process has no count: the last one would make it look alive.
            None if self.is_ending() => return Err(Error::Vanished(self.pid)),
            // Before Linux 6.2 the directory has no size: its names are counted.
            None => match (self.count, &self.dir) {
                (Some(count), _) => count,
                (None, Some(dir)) => {
                    let numbers = dir.numbers().map_err(|error| self.lost(error))?;
                    numbers.len() as u64
                }
                (None, None) => return Err(self.uncounted()),
            },
        };
        Ok(WatcherTick {
            count,
            ..WatcherTick::default()
        })
    }

    /// What cannot be observed about this process.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        let denied = self.dir.is_none();
        let counted = self.counted().is_some();
        denied
            .then(|| denied_gap(self.pid, counted))
            .into_iter()
            .collect()
    }

    /// Reads the count, and if that changed, the new descriptors.
    pub fn tick(&mut self) -> Result<WatcherTick, Error> {
        match self.counted() {
            Some(count) if self.count == Some(count) || self.dir.is_none() => Ok(WatcherTick {
                count,
                ..WatcherTick::default()
            }),
            _ => self.list(),
        }
    }

    /// Reads the numbers in use whatever the count is, and each new descriptor.
    pub fn list(&mut self) -> Result<WatcherTick, Error> {
        let Some(dir) = &self.dir else {
            return Err(self.uncounted());
        };
        let numbers = dir.numbers().map_err(|error| self.lost(error))?;
        let fresh = missing_from(&numbers, self.known.numbers());
        let table = self.look_at(dir, &fresh)?;
        // It was readable when the watch began: it has changed its user, or became protected.
        if table.denied > 0 && table.entries.is_empty() && may_not_look(&self.base) {
            return Err(self.lost(rustix::io::Errno::ACCESS));
        }
        // A descriptor that could not be read is not known yet: a later tick reports it as opened.
        let read = |fd: &Fd| {
            let entries = &table.entries;
            fresh.binary_search(fd).is_err()
                || entries.binary_search_by_key(fd, |entry| entry.fd).is_ok()
        };
        let numbers: Vec<Fd> = numbers.into_iter().filter(read).collect();
        let closed = missing_from(self.known.numbers(), &numbers);
        // At exit the kernel closes everything: that says nothing about the program.
        if (numbers.is_empty() || !closed.is_empty()) && self.is_ending() {
            return Err(Error::Vanished(self.pid));
        }
        let unread = table.denied + table.unstable;
        self.known.replace(numbers, &table.entries);
        self.watches_files |= table.entries.iter().any(|one| one.class == Class::Inotify);
        self.count = self.counted();
        let count = self.known.numbers().len() as u64 + unread;
        // The count may have changed since the listing: then the next tick must list again.
        if self.count != Some(count) || unread > 0 {
            self.count = None;
        }
        Ok(WatcherTick {
            count,
            listed: true,
            opened: table.entries,
            closed,
            changed: Vec::new(),
        })
    }

    /// Reads up to `most` of the known descriptors again, those of the last listing first, then the
    /// others in turn: whether the number was reused, and whether a socket or a file changed.
    pub fn verify(&mut self, most: usize) -> Result<WatcherTick, Error> {
        let Some(dir) = &self.dir else {
            return self.tick();
        };
        let (mut suspects, mut links) = (Vec::new(), Vec::new());
        let mut link = vec![0; 4096 + 16];
        for fd in self.known.next(most) {
            let read = rustix::fs::readlinkat_raw(&dir.fd, DecInt::new(fd), &mut link[..]);
            // Closed, or no longer readable: the next listing shows which.
            let Ok(length) = read else { continue };
            let seen = cache::hash_of(&link[..length]);
            if !self.known.is_settled(fd, seen) {
                suspects.push(fd);
                links.push(seen);
            }
        }
        let table = self.look_at(dir, &suspects)?;
        let mut tick = WatcherTick {
            count: self.known.numbers().len() as u64,
            listed: true,
            ..WatcherTick::default()
        };
        for entry in table.entries {
            let Ok(at) = suspects.binary_search(&entry.fd) else {
                continue;
            };
            match self.known.compare(&entry, links[at]) {
                CachedDetail::Same => {}
                CachedDetail::Changed => tick.changed.push(entry),
                CachedDetail::Replaced => {
                    tick.closed.push(entry.fd);
                    tick.opened.push(entry);
                }
            }
        }
        if !tick.closed.is_empty() && self.is_ending() {
            return Err(Error::Vanished(self.pid));
        }
        Ok(tick)
    }

    /// Everything about these descriptors that is known without a search of other processes.
    fn look_at(&self, dir: &TableDir, numbers: &[Fd]) -> Result<TableDraft, Error> {
        let by_kernel = self.read_by_kernel(numbers);
        let mut table = match by_kernel.unwrap_or_else(|| Ok(dir.read(numbers))) {
            Ok(table) => table,
            Err(error) => return Err(self.lost(error)),
        };
        if let Some(error) = table.trouble {
            return Err(self.lost(error));
        }
        let links = || self.probe.real.then(|| dir.as_fd());
        pass::run_open(&mut table, Needs::Descriptors, &links);
        let context = Context {
            base: Some(self.base.as_fd()),
            ..Context::new(self.probe, Needs::Descriptors)
        };
        let mut table = table.with_netns(self.base.as_fd());
        pass::run_on_part(&context, &mut table);
        Ok(table)
    }

    /// The same numbers by a kernel walk, if there are many of them and it is allowed. Not
    /// fdguard's own, among which the walk would show itself.
    fn read_by_kernel(&self, numbers: &[Fd]) -> Option<Result<TableDraft, rustix::io::Errno>> {
        if numbers.len() < MANY || !self.probe.real || self.pid == std::process::id() {
            return None;
        }
        let stat = files::read(&self.base, c"stat").ok()?;
        let process = (self.pid, ProcStat::parse(&stat)?.start_ticks);
        let probe = self.probe;
        probe.numbers_by_walk(&KernelReader::default(), process, &self.base, numbers)
    }

    fn is_ending(&self) -> bool {
        let bytes = files::read(&self.base, c"stat").unwrap_or_default();
        ProcStat::parse(&bytes).is_none_or(|stat| stat.is_ending())
    }

    /// The count without a listing, if the kernel provides it.
    fn counted(&self) -> Option<u64> {
        match &self.dir {
            Some(dir) => self.probe.real.then(|| dir.count()).flatten(),
            None => self.count_from_outside(),
        }
    }

    /// An empty table and an exited process look alike from here.
    fn count_from_outside(&self) -> Option<u64> {
        if !self.probe.sizes {
            return None;
        }
        let stat = rustix::fs::statat(&self.base, c"fd", AtFlags::empty()).ok()?;
        let count = u64::try_from(stat.st_size).ok()?;
        (count > 0 || !self.is_ending()).then_some(count)
    }

    /// Why there is not even a count.
    fn uncounted(&self) -> Error {
        if self.is_ending() {
            return Error::Vanished(self.pid);
        }
        gone_or(self.pid, "descriptors", rustix::io::Errno::ACCESS)
    }

    fn lost(&self, error: rustix::io::Errno) -> Error {
        gone_or(self.pid, "descriptors", error)
    }
}

/// Whether links of this process are refused, whatever its lists allow: the kernel requires the
/// same permission for this link as for those of descriptors.
fn may_not_look(base: &OwnedFd) -> bool {
    let link = rustix::fs::readlinkat_raw(base, c"exe", &mut [0; 1][..]);
    link.is_err_and(files::is_denied)
}

/// The numbers of the first ascending list that are not in the second.
fn missing_from(these: &[Fd], those: &[Fd]) -> Vec<Fd> {
    let mut those = those.iter().copied().peekable();
    let mut missing = Vec::new();
    for fd in these {
        while those.next_if(|other| other < fd).is_some() {}
        if those.peek() != Some(fd) {
            missing.push(*fd);
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::missing_from;

    #[test]
    fn two_ascending_lists_differ_by_what_is_missing() {
        assert_eq!(missing_from(&[0, 1, 5, 9], &[0, 5]), [1, 9]);
        assert_eq!(missing_from(&[0, 5], &[0, 1, 5, 9]), Vec::<u32>::new());
        assert_eq!(missing_from(&[3], &[]), [3]);
    }
}
