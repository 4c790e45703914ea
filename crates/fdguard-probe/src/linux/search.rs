//! A search of the links of other processes, for those that hold the same pipes, sockets, terminals
//! and databases.

use std::os::fd::{AsFd, BorrowedFd};

use fdguard_core::detail::PipeEnd;
use fdguard_core::{Class, Detail, Fd, FdEntry, FdHolder, Mode, Pid};
use fdguard_proc::ascii::decimal;
use fdguard_proc::fdinfo::Fdinfo;
use fdguard_proc::link::Link;
use fdguard_proc::stat::ProcStat;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::fs::AtFlags;
use rustix::path::DecInt;
use smallvec::SmallVec;

use super::kernel::search::Glimpse;
use super::table::TableDraft;
use super::{Probe, files};
use crate::workers::{self, Queue};

/// What is held: sockets by inode, ends of pipes by inode, files (and ends of named pipes) by path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Thing {
    Socket(u64),
    Pipe(u64, Option<PipeEnd>),
    Path(Vec<u8>, Option<PipeEnd>),
    /// By the number that the kernel assigns: they all share one inode.
    Eventfd(u64),
    /// The sides of a pseudo-terminal by its number, among processes that see the same mounts.
    PtyMaster(u32),
    PtySlave(u32),
}

impl Thing {
    /// The part of an entry that other processes may hold, too.
    pub(super) fn of(entry: &FdEntry) -> Option<Self> {
        if let Detail::Eventfd(eventfd) = &entry.detail {
            return eventfd.id.map(Self::Eventfd);
        }
        let ino = entry.id?.ino;
        let end = match &entry.detail {
            Detail::Pipe(pipe) => pipe.end,
            _ => None,
        };
        match entry.class {
            Class::Pipe => Some(Self::Pipe(ino, end)),
            Class::Tcp(_) | Class::Udp | Class::Unix => Some(Self::Socket(ino)),
            Class::SqliteDb | Class::Fifo if !entry.deleted => {
                Some(Self::Path(entry.target.as_bytes().to_vec(), end))
            }
            Class::Other(ref name) if &**name == "mqueue" && !entry.deleted => {
                Some(Self::Path(entry.target.as_bytes().to_vec(), None))
            }
            _ => None,
        }
    }

    /// The side of a pseudo-terminal, if the entry is one.
    pub(super) fn pty_side(entry: &FdEntry) -> Option<Self> {
        match &entry.detail {
            Detail::Pty(pty) => pty.index.map(Self::PtyMaster),
            Detail::File(file) if entry.class == Class::Tty => {
                pts_index(file.path.as_bytes()).map(Self::PtySlave)
            }
            _ => None,
        }
    }
}

/// An object whose other holders are wanted.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pipes: FxHashSet<u64>,
    sockets: FxHashSet<u64>,
    /// With the inode, because in another mount namespace the same path may be another file; and
    /// whether it is a pipe, which has ends.
    paths: FxHashMap<Vec<u8>, (u64, bool)>,
    eventfds: FxHashSet<u64>,
    /// Numbers of pseudo-terminals.
    ptys: FxHashSet<u32>,
    /// fdguard's mount namespace: only there do the numbers of pseudo-terminals have the same
    /// meaning.
    pub(super) mounts: Option<Vec<u8>>,
    /// The user whose inotify instances to count, if the limit matters.
    pub(super) inotify_of: Option<u32>,
}

impl Interest {
    /// For about so many descriptors.
    pub(super) fn with_room(descriptors: usize) -> Self {
        let mut interest = Self::default();
        interest.sockets.reserve(descriptors / 4);
        interest.pipes.reserve(descriptors / 8);
        interest.eventfds.reserve(descriptors / 8);
        interest
    }

    /// Adds what a process that was read in full has open: others may hold it. `is_near`: it is in
    /// fdguard's mount namespace.
    pub(super) fn add(&mut self, table: &TableDraft, is_near: impl Fn(Pid) -> bool) {
        let mut near = None;
        for entry in &table.entries {
            if let Some(Thing::PtyMaster(index) | Thing::PtySlave(index)) = Thing::pty_side(entry)
                && *near.get_or_insert_with(|| is_near(table.pid))
            {
                self.ptys.insert(index);
            }
            let peer = match &entry.detail {
                Detail::Inet(inet) => inet.peer.as_ref().map(|peer| peer.ino),
                Detail::Unix(unix) => unix.peer.as_ref().map(|peer| peer.ino),
                _ => None,
            };
            self.sockets.extend(peer);
            let Some(thing) = Thing::of(entry) else {
                continue;
            };
            match thing {
                Thing::Pipe(ino, _) => self.pipes.extend([ino]),
                Thing::Socket(ino) => self.sockets.extend([ino]),
                Thing::Eventfd(id) => self.eventfds.extend([id]),
                Thing::Path(path, _) => {
                    let is_pipe = entry.class == Class::Fifo;
                    self.paths
                        .extend(entry.id.map(|id| (path, (id.ino, is_pipe))));
                }
                Thing::PtyMaster(_) | Thing::PtySlave(_) => {}
            }
        }
    }

    /// Interest only in these sockets.
    pub(super) fn in_sockets(inodes: &[u64]) -> Self {
        Self {
            sockets: inodes.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Whether what a kernel walk shows of a descriptor may be one of these.
    pub(super) fn may_include(&self, glimpse: Glimpse<'_>) -> bool {
        match glimpse {
            Glimpse::Inode(ino) => self.sockets.contains(&ino) || self.pipes.contains(&ino),
            Glimpse::Eventfd(id) => self.eventfds.contains(&id),
            Glimpse::Link(b"anon_inode:inotify", _) => self.inotify_of.is_some(),
            Glimpse::Link(text, _) => {
                let is_master = matches!(text, b"/dev/ptmx" | b"/dev/pts/ptmx");
                let has_index = |index| self.ptys.contains(&index);
                self.paths.contains_key(text)
                    || (is_master && !self.ptys.is_empty())
                    || pts_index(text).is_some_and(has_index)
            }
            Glimpse::Unknown => true,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pipes.is_empty()
            && self.sockets.is_empty()
            && self.paths.is_empty()
            && self.eventfds.is_empty()
            && self.ptys.is_empty()
            && self.inotify_of.is_none()
    }
}

/// Most things have one holder, which needs no list.
type Holders = SmallVec<[FdHolder; 1]>;

/// The holders of each thing.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Each list ascending, once [`Holdings::sort`] was called.
    held: FxHashMap<Thing, Holders>,
    /// Processes whose links could not be read: absence proves nothing while there are any.
    pub(super) unread: u64,
    /// Whether processes are in fdguard's mount namespace, where that was asked.
    near: FxHashMap<Pid, bool>,
    /// inotify instances and watches of the user in question.
    pub(super) inotify: (u64, u64),
}

impl Holdings {
    /// For about so many descriptors.
    pub(super) fn with_room(descriptors: usize) -> Self {
        let mut holdings = Self::default();
        holdings.held.reserve(descriptors / 2);
        holdings
    }

    /// Adds a process that was read in full: it holds what it has open. `is_near`: it is in
    /// fdguard's mount namespace.
    pub(super) fn add(&mut self, table: &TableDraft, is_near: impl Fn(Pid) -> bool) {
        for entry in &table.entries {
            let holder = FdHolder {
                pid: table.pid,
                fd: entry.fd,
                writes: None,
            };
            if let Some(side) = Thing::pty_side(entry)
                && self.is_near(table.pid, &is_near)
            {
                self.held.entry(side).or_default().push(holder);
            }
            let Some(thing) = Thing::of(entry) else {
                continue;
            };
            let writes = match &thing {
                Thing::Path(_, None) => entry.mode.map(Mode::writes),
                _ => None,
            };
            let holder = FdHolder { writes, ..holder };
            self.held.entry(thing).or_default().push(holder);
        }
    }

    /// Whether a process that was read in full is in fdguard's mount namespace: then `/dev/pts/3`
    /// is the same terminal.
    fn is_near(&mut self, pid: Pid, ask: impl Fn(Pid) -> bool) -> bool {
        *self.near.entry(pid).or_insert_with(|| ask(pid))
    }

    /// The same, once the process was added.
    pub(super) fn was_near(&self, pid: Pid) -> bool {
        self.near.get(&pid) == Some(&true)
    }

    /// Searches the links of one more process.
    pub(super) fn add_links(&mut self, pid: Pid, base: BorrowedFd<'_>, interest: &Interest) {
        let dir = match files::open_dir_at(base, c"fd") {
            Ok(dir) => dir,
            Err(error) => {
                self.unread += u64::from(files::is_denied(error) && may_hold_something(base));
                return;
            }
        };
        let Ok(numbers) = files::numbers(dir.as_fd()) else {
            return;
        };
        let counts_inotify = interest.inotify_of.is_some()
            && rustix::fs::fstat(base).is_ok_and(|stat| Some(stat.st_uid) == interest.inotify_of);
        let mut buffer = vec![0; 4096 + 16];
        let mut near = None;
        for fd in numbers {
            match rustix::fs::readlinkat_raw(&dir, DecInt::new(fd), &mut buffer[..]) {
                Ok(length) => {
                    let text = &buffer[..length];
                    if counts_inotify && text == b"anon_inode:inotify" {
                        self.inotify.0 += 1;
                        self.inotify.1 += watches(base, fd);
                    }
                    let holder = FdHolder {
                        pid,
                        fd,
                        writes: None,
                    };
                    if let Some(thing) = numbered_thing(base, fd, text, interest) {
                        let is_pty = !matches!(thing, Thing::Eventfd(_));
                        let is_near = || files::read_link(base, c"ns/mnt").ok() == interest.mounts;
                        if !is_pty || *near.get_or_insert_with(is_near) {
                            self.held.entry(thing).or_default().push(holder);
                        }
                    }
                    self.add_link(holder, dir.as_fd(), &Link::parse(text), interest);
                }
                // If one link of a process may not be read, none may.
                Err(error) if files::is_denied(error) => {
                    self.unread += 1;
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn add_link(
        &mut self,
        holder: FdHolder,
        dir: BorrowedFd<'_>,
        link: &Link<'_>,
        interest: &Interest,
    ) {
        let (thing, holder) = match link {
            Link::Socket(ino) if interest.sockets.contains(ino) => (Thing::Socket(*ino), holder),
            Link::Pipe(ino) if interest.pipes.contains(ino) => {
                let end = link_mode(dir, holder.fd).and_then(end_of);
                (Thing::Pipe(*ino, end), holder)
            }
            Link::Path {
                path,
                marked: false,
            } => {
                let Some((ino, is_pipe)) = interest.paths.get(*path) else {
                    return;
                };
                let target = rustix::fs::statat(dir, DecInt::new(holder.fd), AtFlags::empty());
                if !target.is_ok_and(|stat| stat.st_ino == *ino) {
                    return;
                }
                let mode = link_mode(dir, holder.fd);
                if *is_pipe {
                    (Thing::Path(path.to_vec(), mode.and_then(end_of)), holder)
                } else {
                    let writes = mode.map(|(_, writes)| writes);
                    (
                        Thing::Path(path.to_vec(), None),
                        FdHolder { writes, ..holder },
                    )
                }
            }
            _ => return,
        };
        self.held.entry(thing).or_default().push(holder);
    }

    /// Adds the result of another search.
    pub(super) fn absorb(&mut self, other: Self) {
        for (thing, mut holders) in other.held {
            self.held.entry(thing).or_default().append(&mut holders);
        }
        self.unread += other.unread;
        self.inotify.0 += other.inotify.0;
        self.inotify.1 += other.inotify.1;
    }

    /// Sorts every list: to be called when all is in.
    pub(super) fn sort(&mut self) {
        self.held
            .values_mut()
            .for_each(|holders| holders.sort_unstable());
    }

    /// The holders of a thing.
    pub(super) fn of(&self, thing: &Thing) -> &[FdHolder] {
        self.held.get(thing).map_or(&[], SmallVec::as_slice)
    }
}

impl Probe {
    /// Whether a process is worth searching: kernel threads and zombies hold nothing.
    pub(super) fn holds_something(&self, pid: Pid) -> bool {
        !self.sizes || self.table_stat(pid).is_ok_and(|stat| stat.st_size > 0)
    }

    /// Searches these processes.
    pub(super) fn search(&self, pids: &[Pid], interest: &Interest, threads: usize) -> Holdings {
        let queue = Queue::new(pids.len(), 4);
        let parts = workers::run(threads.min(pids.len() / 16 + 1), || {
            let mut part = Holdings::default();
            while let Some(range) = queue.take() {
                for pid in &pids[range] {
                    if let Ok(base) = self.open_process(*pid) {
                        part.add_links(*pid, base.as_fd(), interest);
                    }
                }
            }
            part
        });
        let mut total = Holdings::default();
        for part in parts {
            total.absorb(part);
        }
        total
    }
}

/// Zombies and kernel threads deny access, too, but hold nothing.
fn may_hold_something(base: BorrowedFd<'_>) -> bool {
    let Ok(bytes) = files::read(base, c"stat") else {
        return false;
    };
    ProcStat::parse(&bytes).is_none_or(|stat| !stat.is_zombie() && !stat.kernel_thread)
}

/// Things identified by a number in their fdinfo or name: event counters and pseudo-terminals.
fn numbered_thing(base: BorrowedFd<'_>, fd: Fd, text: &[u8], interest: &Interest) -> Option<Thing> {
    let info = || files::read(base, format!("fdinfo/{fd}")).ok();
    if text == b"anon_inode:[eventfd]" && !interest.eventfds.is_empty() {
        let id = Fdinfo::parse(&info()?).number(b"eventfd-id")?;
        return interest
            .eventfds
            .contains(&id)
            .then_some(Thing::Eventfd(id));
    }
    if interest.ptys.is_empty() {
        return None;
    }
    if matches!(text, b"/dev/ptmx" | b"/dev/pts/ptmx") {
        let index = Fdinfo::parse(&info()?).tty_index()?;
        return interest
            .ptys
            .contains(&index)
            .then_some(Thing::PtyMaster(index));
    }
    let index = pts_index(text)?;
    interest
        .ptys
        .contains(&index)
        .then_some(Thing::PtySlave(index))
}

fn pts_index(path: &[u8]) -> Option<u32> {
    let number = decimal(path.strip_prefix(b"/dev/pts/")?)?;
    u32::try_from(number).ok()
}

/// The permission bits of a descriptor link show how the file was opened: for reading, for writing.
fn link_mode(dir: BorrowedFd<'_>, fd: Fd) -> Option<(bool, bool)> {
    let stat = rustix::fs::statat(dir, DecInt::new(fd), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_mode & 0o400 != 0, stat.st_mode & 0o200 != 0))
}

fn end_of(mode: (bool, bool)) -> Option<PipeEnd> {
    match mode {
        (true, true) => Some(PipeEnd::Both),
        (true, false) => Some(PipeEnd::Read),
        (false, true) => Some(PipeEnd::Write),
        (false, false) => None,
    }
}

fn watches(base: BorrowedFd<'_>, fd: Fd) -> u64 {
    let path = format!("fdinfo/{fd}");
    files::read(base, path).map_or(0, |bytes| Fdinfo::parse(&bytes).watches())
}
