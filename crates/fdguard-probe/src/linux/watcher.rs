//! Watching one process: a tick that changes nothing costs one system call.

use std::os::fd::OwnedFd;

use fdguard_core::{Fd, FdEntry, Pid};

use super::process::gone_or;
use super::table::TableDir;
use super::{Probe, files};
use crate::Error;
use crate::parse::stat::Stat;
use crate::sqlite;

/// What one tick saw.
#[derive(Debug, Default, PartialEq)]
pub struct Tick {
    /// Number of descriptors now.
    pub count: u64,
    /// Whether the table was listed; when not, the count alone was looked at.
    pub listed: bool,
    /// Descriptors at numbers that were free at the last listing.
    pub opened: Vec<FdEntry>,
    /// Numbers that were in use at the last listing and are free now.
    pub closed: Vec<Fd>,
}

/// Watches the table of one process. An equal count can hide a swap: callers that must know ask for a
/// listing now and then.
#[derive(Debug)]
pub struct Watcher<'p> {
    probe: &'p Probe,
    pid: Pid,
    base: OwnedFd,
    dir: TableDir,
    count: Option<u64>,
    numbers: Vec<Fd>,
}

impl<'p> Watcher<'p> {
    /// Starts to watch; the first tick reports everything as opened.
    pub fn new(probe: &'p Probe, pid: Pid) -> Result<Self, Error> {
        let base = probe.open_process(pid)?;
        let dir = probe
            .table_dir(pid, &base)
            .map_err(|error| Error::io(format!("descriptors of process {pid}"), error))?;
        Ok(Self {
            probe,
            pid,
            base,
            dir,
            count: None,
            numbers: Vec::new(),
        })
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Looks: at the count, and when that changed at what is new.
    pub fn tick(&mut self) -> Result<Tick, Error> {
        match self.counted() {
            Some(count) if self.count == Some(count) => Ok(Tick {
                count,
                ..Tick::default()
            }),
            _ => self.list(),
        }
    }

    /// Looks at the numbers in use whatever the count says, and at each one that is new.
    pub fn list(&mut self) -> Result<Tick, Error> {
        let numbers = self.dir.numbers().map_err(|error| self.lost(error))?;
        let opened = missing_from(&numbers, &self.numbers);
        let mut table = self.dir.read(&opened);
        if let Some(error) = table.trouble {
            return Err(self.lost(error));
        }
        // What could not be read is not known yet: a later look reports it as opened.
        let read = |fd: &Fd| {
            let entries = &table.entries;
            opened.binary_search(fd).is_err()
                || entries.binary_search_by_key(fd, |entry| entry.fd).is_ok()
        };
        let numbers: Vec<Fd> = numbers.into_iter().filter(read).collect();
        let closed = missing_from(&self.numbers, &numbers);
        // At its end the kernel closes everything: that is no news about the program.
        if (numbers.is_empty() || !closed.is_empty()) && self.is_ending() {
            return Err(Error::Vanished(self.pid));
        }
        let unread = table.denied + table.unstable;
        sqlite::classify(
            &mut table.entries,
            self.probe.real.then(|| self.dir.as_fd()),
        );
        self.probe.describe_alone(self.pid, &self.base, &mut table);
        self.probe.describe_pidfds(&mut table);
        self.count = self.counted();
        self.numbers = numbers;
        let count = self.numbers.len() as u64 + unread;
        // The count may have moved since the listing: then the next tick must list again.
        if self.count != Some(count) || unread > 0 {
            self.count = None;
        }
        Ok(Tick {
            count,
            listed: true,
            opened: table.entries,
            closed,
        })
    }

    fn is_ending(&self) -> bool {
        let bytes = files::read(&self.base, c"stat").unwrap_or_default();
        Stat::parse(&bytes).is_none_or(|stat| stat.is_ending())
    }

    /// The count without a listing, where the kernel tells it.
    fn counted(&self) -> Option<u64> {
        self.probe.real.then(|| self.dir.count()).flatten()
    }

    fn lost(&self, error: rustix::io::Errno) -> Error {
        gone_or(self.pid, "descriptors", error)
    }
}

/// What the first of two ascending lists has and the second has not.
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
