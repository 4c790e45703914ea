//! The holders of certain files: one search of the tables and mappings of all processes.
//!
//! A file is recognised by its inode, so that hard links, other mount namespaces and renamed files
//! count; and by the path that it was opened by, so that files deleted or replaced there since are
//! found, too.

use std::os::fd::{AsFd as _, BorrowedFd};

use fdguard_core::detail::FileLock;
use fdguard_core::units::counted;
use fdguard_core::{Fd, Gap, Mode, Pid, Text};
use fdguard_proc::fdinfo::Fdinfo;
use fdguard_proc::link::Link;
use fdguard_proc::locks::{self, HeldLock};
use fdguard_proc::maps;
use fdguard_proc::stat::ProcStat;
use rustix::fs::AtFlags;
use rustix::path::DecInt;

use super::kernel::KernelReader;
use super::kernel::search::Glimpse;
use super::{Probe, fdinfo_detail, files, gaps};
use crate::Error;

/// A file to search for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoughtFile {
    /// Its path, absolute and without links.
    pub path: Vec<u8>,
    /// Device and inode of the current file there; absent if there is none.
    pub id: Option<(u64, u64)>,
}

/// One way in which a process holds a requested file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHold {
    /// The process.
    pub pid: Pid,
    /// Its parent, from which it may be inherited.
    pub ppid: Pid,
    /// When it started, in clock ticks after boot: with the pid its identity.
    pub start_ticks: u64,
    /// Its command.
    pub comm: Text,
    /// Which of the requested files, by index.
    pub which: usize,
    /// How.
    pub by: HoldKind,
    /// Whether it is the current file at the path; otherwise it was deleted or replaced.
    pub current: bool,
    /// Whether it was opened by the requested path. Otherwise it was opened by a link or in another
    /// mount namespace, or it is a different file: a new file may reuse the inode number of a
    /// short-lived one.
    pub named: bool,
    /// Device and inode of what is held, if known.
    pub id: Option<(u64, u64)>,
    /// Locks that were taken through this descriptor.
    pub locks: Vec<FileLock>,
}

/// How a file is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// Through a descriptor.
    Descriptor {
        /// Its number.
        fd: Fd,
        /// Its access mode.
        mode: Option<Mode>,
    },
    /// Through a mapping whose writes go into the file.
    Mapping,
    /// Through an io_uring that has it registered.
    Ring {
        /// The number of the ring.
        fd: Fd,
    },
}

impl HoldKind {
    /// Whether it allows writing; absent if unknown.
    #[must_use]
    pub fn writes(self) -> Option<bool> {
        match self {
            Self::Descriptor { mode, .. } => mode.map(Mode::writes),
            Self::Mapping => Some(true),
            Self::Ring { .. } => None,
        }
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct FileHolders {
    /// Everything that is held, by process.
    pub held: Vec<FileHold>,
    /// Processes that could not be read.
    pub unread: Vec<Pid>,
    /// What could not be observed.
    pub gaps: Vec<Gap>,
}

impl Probe {
    /// The holders of these files, except fdguard itself. Mappings are examined only on request:
    /// that is the expensive part, and the kernel's own count (a lease) may already have shown that
    /// there are no writers.
    pub fn holders(&self, sought: &[SoughtFile], mappings: bool) -> Result<FileHolders, Error> {
        let own = std::process::id();
        let mut found = FileHolders::default();
        let mut pids = self.pids()?;
        pids.retain(|pid| *pid != own);
        // Mappings are in no table: for them, every process must be read.
        if !mappings {
            let may_include = |glimpse: Glimpse<'_>| may_be_sought(glimpse, sought);
            let kept = self.keep_holders(&KernelReader::default(), &pids, may_include);
            pids = kept.unwrap_or(pids);
        }
        for pid in pids {
            // An exited process holds nothing.
            let Ok(base) = self.open_process(pid) else {
                continue;
            };
            found.scan_process(pid, base.as_fd(), sought, mappings);
        }
        found.gaps.extend(unread_gap(&found.unread));
        found.gaps.extend(self.hides.then(gaps::hidden_gap));
        Ok(found)
    }

    /// Every lock and lease of the system, as far as the kernel shows them in fdguard's pid
    /// namespace.
    pub fn locks(&self) -> Result<Vec<HeldLock>, Error> {
        let bytes = files::read_pieces(&self.proc, c"locks")
            .map_err(|error| Error::io("/proc/locks", error))?;
        Ok(locks::locks(&bytes))
    }

    /// The command of a process and its start time; `None` if it is gone.
    #[must_use]
    pub fn name_of(&self, pid: Pid) -> Option<(Text, u64)> {
        let bytes = files::read(&self.proc, format!("{pid}/stat")).ok()?;
        ProcStat::parse(&bytes).map(|stat| (Text::from(stat.comm), stat.start_ticks))
    }
}

impl FileHolders {
    fn scan_process(
        &mut self,
        pid: Pid,
        base: BorrowedFd<'_>,
        sought: &[SoughtFile],
        mappings: bool,
    ) {
        let Ok(bytes) = files::read(base, c"stat") else {
            return;
        };
        let Some(stat) =
            ProcStat::parse(&bytes).filter(|stat| !stat.is_zombie() && !stat.kernel_thread)
        else {
            return;
        };
        let mut one = One {
            pid,
            ppid: stat.ppid,
            start_ticks: stat.start_ticks,
            comm: Text::from(stat.comm),
            base,
            sought,
            held: Vec::new(),
        };
        let read = one
            .descriptors()
            .and_then(|()| if mappings { one.mappings() } else { Ok(()) });
        match read {
            Err(error) if files::is_denied(error) => self.unread.push(pid),
            _ => {}
        }
        self.held.append(&mut one.held);
    }
}

/// One process of the search.
struct One<'a> {
    pid: Pid,
    ppid: Pid,
    start_ticks: u64,
    comm: Text,
    base: BorrowedFd<'a>,
    sought: &'a [SoughtFile],
    held: Vec<FileHold>,
}

impl One<'_> {
    fn descriptors(&mut self) -> rustix::io::Result<()> {
        let dir = files::open_dir_at(self.base, c"fd")?;
        let mut buffer = vec![0; 4096 + 16];
        for fd in files::numbers(dir.as_fd())? {
            match rustix::fs::readlinkat_raw(&dir, DecInt::new(fd), &mut buffer[..]) {
                Ok(length) => self.descriptor(fd, dir.as_fd(), &buffer[..length]),
                Err(error) if files::is_denied(error) => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn descriptor(&mut self, fd: Fd, dir: BorrowedFd<'_>, link: &[u8]) {
        let path = match Link::parse(link) {
            Link::Path { path, .. } => path,
            Link::Anonymous(b"[io_uring]") => return self.ring(fd),
            _ => return,
        };
        let info = files::read(self.base, format!("fdinfo/{fd}")).unwrap_or_default();
        let info = Fdinfo::parse(&info);
        // Reading the inode from fdinfo does not access the file system, which may not respond.
        // Kernels before 5.14 lack it.
        let may_be = |sought: &SoughtFile| {
            sought.path == path
                || sought.path == link
                || sought
                    .id
                    .is_some_and(|(_, ino)| info.ino.is_none_or(|told| told == ino))
        };
        if !self.sought.iter().any(may_be) {
            return;
        }
        let stat = rustix::fs::statat(dir, DecInt::new(fd), AtFlags::empty()).ok();
        let id = stat.map(|stat| (stat.st_dev, stat.st_ino));
        let by = HoldKind::Descriptor {
            fd,
            mode: fdinfo_detail::mode(&info),
        };
        if let Some((which, current)) = self.recognise(path, id) {
            let named = self.sought[which].path == path;
            self.take(which, by, (current, named), id, fdinfo_detail::locks(&info));
        }
    }

    /// Which of the requested files this is: the current one by inode, an earlier one by path.
    fn recognise(&self, path: &[u8], id: Option<(u64, u64)>) -> Option<(usize, bool)> {
        let now = self
            .sought
            .iter()
            .position(|sought| sought.id.is_some() && sought.id == id);
        let then = || self.sought.iter().position(|sought| sought.path == path);
        now.map(|which| (which, true))
            .or_else(|| Some((then()?, false)))
    }

    /// Files registered in an io_uring are in no table; its fdinfo names them.
    fn ring(&mut self, fd: Fd) {
        let Ok(bytes) = files::read(self.base, format!("fdinfo/{fd}")) else {
            return;
        };
        for which in 0..self.sought.len() {
            let path = &self.sought[which].path;
            let names = |line: &[u8]| {
                line.strip_suffix(&path[..])
                    .is_some_and(|before| before.ends_with(b" "))
            };
            if bytes
                .split(|byte| *byte == b'\n')
                .any(|line| names(line.trim_ascii_end()))
            {
                self.take(
                    which,
                    HoldKind::Ring { fd },
                    (true, true),
                    self.sought[which].id,
                    Vec::new(),
                );
            }
        }
    }

    fn mappings(&mut self) -> rustix::io::Result<()> {
        let bytes = files::read_pieces(self.base, c"maps")?;
        let mut seen = Vec::new();
        for mapping in maps::mappings(&bytes).filter(|mapping| mapping.writes_through) {
            let Link::Path { path, marked } = Link::parse(mapping.path) else {
                continue;
            };
            let path = maps::unescaped(path);
            let is_this = |sought: &SoughtFile| {
                let same_ino = sought.id.is_some_and(|(_, ino)| ino == mapping.ino);
                let same_device = sought
                    .id
                    .is_some_and(|(dev, _)| device_text(dev).as_bytes() == mapping.device);
                (same_ino && (same_device || sought.path == path))
                    || (sought.path == path && marked)
            };
            let Some(which) = self.sought.iter().position(is_this) else {
                continue;
            };
            if !seen.contains(&which) {
                seen.push(which);
                let named = self.sought[which].path == path;
                self.take(which, HoldKind::Mapping, (!marked, named), None, Vec::new());
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        which: usize,
        by: HoldKind,
        (current, named): (bool, bool),
        id: Option<(u64, u64)>,
        locks: Vec<FileLock>,
    ) {
        self.held.push(FileHold {
            pid: self.pid,
            ppid: self.ppid,
            start_ticks: self.start_ticks,
            comm: self.comm.clone(),
            which,
            by,
            current,
            named,
            id,
            locks,
        });
    }
}

/// Whether what a kernel walk shows of a descriptor may be one of these files: one with its inode
/// or its path, or an io_uring that has it registered.
fn may_be_sought(glimpse: Glimpse<'_>, sought: &[SoughtFile]) -> bool {
    match glimpse {
        Glimpse::Inode(_) | Glimpse::Eventfd(_) => false,
        Glimpse::Link(b"anon_inode:[io_uring]", _) | Glimpse::Unknown => true,
        Glimpse::Link(link, ino) => {
            let path = match Link::parse(link) {
                Link::Path { path, .. } => path,
                _ => return false,
            };
            let is_it = |file: &SoughtFile| {
                file.path == path
                    || file.path == link
                    || file.id.is_some_and(|(_, known)| known == ino)
            };
            sought.iter().any(is_it)
        }
    }
}

/// As the kernel writes it in `maps`.
fn device_text(dev: u64) -> String {
    format!(
        "{:02x}:{:02x}",
        rustix::fs::major(dev),
        rustix::fs::minor(dev)
    )
}

fn unread_gap(unread: &[Pid]) -> Option<Gap> {
    let first = unread.first()?;
    let who = match unread.len() {
        1 => format!("process {first} has"),
        n => format!(
            "{} (the first is {first}) have",
            counted(n as u64, "process")
        ),
    };
    Some(Gap::new(
        format!("whether {who} the file open"),
        "permission denied: owned by another user, or protected",
        "run as root (sudo fdguard …), or with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH",
    ))
}
