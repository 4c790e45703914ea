//! A process: its small files, and how to find it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fdguard_core::snapshot::{Limits, Process};
use fdguard_core::{Pid, Text};
use fdguard_proc::{
    cmdline, limits,
    stat::{ProcStat, TICKS_PER_SECOND},
    status::ProcStatus,
    system_stat,
};
use jiff::Timestamp;
use rustix::io::Errno;
use rustix::path::Arg;

use super::{Probe, files, rlimit};
use crate::Error;

/// The content of a process's small files.
#[derive(Debug)]
pub(super) struct Basics {
    pub(super) process: Process,
    pub(super) limits: Limits,
    pub(super) table_size: Option<u64>,
}

impl Probe {
    /// Opens a process's directory: from here on a reused pid cannot be mixed in.
    pub(super) fn open_process(&self, pid: Pid) -> Result<OwnedFd, Error> {
        let name = rustix::path::DecInt::new(pid);
        files::open_base_at(&self.proc, name).map_err(|error| {
            if files::is_gone(error) {
                Error::NoSuchProcess(pid)
            } else {
                Error::io(format!("process {pid}"), error)
            }
        })
    }

    /// Opens the directory of a process that is known by its start.
    pub(super) fn reopen_process(&self, pid: Pid, start_ticks: u64) -> Result<OwnedFd, Errno> {
        let base = files::open_base_at(&self.proc, rustix::path::DecInt::new(pid))?;
        let bytes = files::read(&base, c"stat")?;
        let is_same = ProcStat::parse(&bytes).is_some_and(|stat| stat.start_ticks == start_ticks);
        is_same.then_some(base).ok_or(Errno::SRCH)
    }

    /// Reads the small files. Fails for processes without descriptors.
    pub(super) fn basics(&self, pid: Pid, base: BorrowedFd<'_>) -> Result<Basics, Error> {
        let stat_bytes = files::read(base, c"stat").map_err(|error| gone_or(pid, "stat", error))?;
        let stat = ProcStat::parse(&stat_bytes).ok_or(Error::Vanished(pid))?;
        if stat.kernel_thread {
            return Err(Error::KernelThread(pid));
        }
        if stat.is_zombie() {
            return Err(Error::Zombie {
                pid,
                ppid: stat.ppid,
            });
        }
        let status_bytes =
            files::read(base, c"status").map_err(|error| gone_or(pid, "status", error))?;
        let status = ProcStatus::parse(&status_bytes);
        let limits = self
            .limits(pid, (base, c"limits"), &mut Vec::new())
            .unwrap_or_default();
        let workload = self.workload_at(base);
        let container = workload.as_ref().and_then(|one| one.container.as_ref());
        let process = Process {
            pid,
            start_time: self.start_time(stat.start_ticks),
            start_ticks: Some(stat.start_ticks),
            comm: Text::from(stat.comm),
            exe: files::read_link(base, c"exe").ok().map(Text::from),
            cmdline: files::read(base, c"cmdline")
                .map(|bytes| cmdline::arguments(&bytes).map(Text::from).collect())
                .unwrap_or_default(),
            uid: status.uid,
            ppid: Some(stat.ppid),
            pgid: stat.pgid,
            threads: Some(stat.threads),
            children: None,
            zombies: None,
            container: container.map(|container| container.id.clone()),
            workload,
            ns_pid: status.ns_pid.filter(|inner| *inner != pid),
            cohorts: Vec::new(),
        };
        Ok(Basics {
            process,
            limits,
            table_size: status.fd_size,
        })
    }

    /// By the system call if it is allowed, otherwise by the text at this path.
    pub(super) fn limits(
        &self,
        pid: Pid,
        (base, path): (BorrowedFd<'_>, impl Arg),
        buffer: &mut Vec<u8>,
    ) -> Result<Limits, Errno> {
        let by_call = if self.real {
            rlimit::read_limits(pid)
        } else {
            None
        };
        match by_call {
            Some(limits) => Ok(limits),
            None => files::read_into(base, path, buffer).map(|text| {
                let (soft, hard) = limits::open_files(text);
                Limits { soft, hard }
            }),
        }
    }

    pub(super) fn start_time(&self, ticks: u64) -> Option<Timestamp> {
        let ticks = i64::try_from(ticks).ok()?;
        let milliseconds = (*self
            .boot
            .get_or_init(|| system_stat::boot_time(&files::read(&self.proc, c"stat").ok()?)))?
        .checked_mul(1000)?
        .checked_add(ticks.checked_mul(1000 / i64::from(TICKS_PER_SECOND))?)?;
        Timestamp::from_millisecond(milliseconds).ok()
    }

    /// Every process, ascending.
    pub fn pids(&self) -> Result<Vec<Pid>, Error> {
        let listing =
            files::open_dir_at(&self.proc, c".").and_then(|dir| files::numbers(dir.as_fd()));
        listing.map_err(|error| Error::NoProc {
            path: self.path.clone(),
            source: error.into(),
        })
    }

    /// Processes whose command name, or the base name of whose executable or first argument, is
    /// `name`.
    pub fn named(&self, name: &str) -> Result<Vec<Pid>, Error> {
        let wanted = name.as_bytes();
        let own = std::process::id();
        let matches = |pid: &Pid| {
            let stat = files::read(&self.proc, format!("{pid}/stat")).unwrap_or_default();
            let Some(stat) =
                ProcStat::parse(&stat).filter(|stat| !stat.kernel_thread && !stat.is_zombie())
            else {
                return false;
            };
            stat.comm == wanted
                || self
                    .first_words(*pid)
                    .any(|word| base_name(&word) == wanted)
        };
        Ok(self
            .pids()?
            .into_iter()
            .filter(|pid| *pid != own)
            .filter(matches)
            .collect())
    }

    /// Every process with its command name, ascending, without kernel threads and zombies.
    pub fn process_names(&self) -> Result<Vec<(Pid, Text)>, Error> {
        let name = |pid| {
            let stat = files::read(&self.proc, format!("{pid}/stat")).ok()?;
            let stat = ProcStat::parse(&stat)?;
            let is_program = !stat.kernel_thread && !stat.is_zombie();
            is_program.then(|| (pid, Text::from(stat.comm)))
        };
        Ok(self.pids()?.into_iter().filter_map(name).collect())
    }

    fn first_words(&self, pid: Pid) -> impl Iterator<Item = Vec<u8>> {
        let exe = files::read_link(&self.proc, format!("{pid}/exe")).ok();
        let first = files::read(&self.proc, format!("{pid}/cmdline")).ok();
        let first = first.and_then(|bytes| Some(cmdline::arguments(&bytes).next()?.to_vec()));
        exe.into_iter().chain(first)
    }

    /// A process and all of its descendants, the process first.
    pub fn tree(&self, root: Pid) -> Result<Vec<Pid>, Error> {
        let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
        for pid in self.pids()? {
            let stat = files::read(&self.proc, format!("{pid}/stat")).unwrap_or_default();
            if let Some(stat) = ProcStat::parse(&stat).filter(|stat| !stat.is_zombie()) {
                children.entry(stat.ppid).or_default().push(pid);
            }
        }
        let mut tree = vec![root];
        let mut at = 0;
        while let Some(pid) = tree.get(at).copied() {
            tree.extend(children.remove(&pid).unwrap_or_default());
            at += 1;
        }
        Ok(tree)
    }
}

/// The error of a file of a process: the process has exited, or the system error.
pub(super) fn gone_or(pid: Pid, file: &str, error: Errno) -> Error {
    if files::is_gone(error) {
        Error::Vanished(pid)
    } else {
        Error::io(format!("{file} of process {pid}"), error)
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::base_name;

    #[test]
    fn the_name_is_what_follows_the_last_slash() {
        assert_eq!(base_name(b"/usr/bin/python3"), b"python3");
        assert_eq!(base_name(b"sh"), b"sh");
    }
}
