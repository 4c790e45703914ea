//! Other holders of the same pipes, sockets and databases: one search of the links of all other
//! processes.

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

use super::files;

/// The most holders listed for one object: every process may have a shell's pipe open.
const MOST_LISTED: usize = 32;

/// What is held: sockets by inode, ends of pipes by inode, files (and ends of named pipes) by path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
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
    fn of(entry: &FdEntry) -> Option<Self> {
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
    fn pty_side(entry: &FdEntry) -> Option<Self> {
        match &entry.detail {
            Detail::Pty(pty) => pty.index.map(Self::PtyMaster),
            Detail::File(file) if entry.class == Class::Tty => {
                pts_index(file.path.as_bytes()).map(Self::PtySlave)
            }
            _ => None,
        }
    }

    /// The opposite ends; none for objects without ends.
    fn opposites(&self) -> Vec<Self> {
        let with = |end: PipeEnd| match self {
            Self::Pipe(ino, _) => Self::Pipe(*ino, Some(end)),
            Self::Path(path, _) => Self::Path(path.clone(), Some(end)),
            other => other.clone(),
        };
        match self {
            Self::PtyMaster(index) => return vec![Self::PtySlave(*index)],
            Self::PtySlave(index) => return vec![Self::PtyMaster(*index)],
            _ => {}
        }
        let ends = match self {
            Self::Pipe(_, Some(end)) | Self::Path(_, Some(end)) => match end {
                PipeEnd::Read => &[PipeEnd::Write, PipeEnd::Both][..],
                PipeEnd::Write => &[PipeEnd::Read, PipeEnd::Both],
                PipeEnd::Both => &[PipeEnd::Read, PipeEnd::Write, PipeEnd::Both],
            },
            _ => &[],
        };
        ends.iter().map(|end| with(*end)).collect()
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
    /// Interest only in these sockets.
    pub(super) fn in_sockets(inodes: &[u64]) -> Self {
        Self {
            sockets: inodes.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Adds what these descriptors make worth searching for. `is_near`: their process is in
    /// fdguard's mount namespace.
    pub(super) fn add(&mut self, entries: &[FdEntry], is_near: impl Fn() -> bool) {
        let mut near = None;
        for entry in entries {
            if let Some(Thing::PtyMaster(index) | Thing::PtySlave(index)) = Thing::pty_side(entry)
                && *near.get_or_insert_with(&is_near)
            {
                self.ptys.insert(index);
            }
            if let Detail::Inet(inet) = &entry.detail {
                self.sockets.extend(inet.peer.as_ref().map(|peer| peer.ino));
            }
            match Thing::of(entry) {
                Some(Thing::Pipe(ino, _)) => self.pipes.extend([ino]),
                Some(Thing::Socket(ino)) => self.sockets.extend([ino]),
                Some(Thing::Eventfd(id)) => self.eventfds.extend([id]),
                Some(Thing::Path(path, _)) => {
                    let is_pipe = entry.class == Class::Fifo;
                    self.paths
                        .extend(entry.id.map(|id| (path, (id.ino, is_pipe))));
                }
                Some(Thing::PtyMaster(_) | Thing::PtySlave(_)) | None => {}
            }
            if let Detail::Unix(unix) = &entry.detail {
                self.sockets.extend(unix.peer.as_ref().map(|peer| peer.ino));
            }
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

/// The holders of each thing.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    /// Each list ascending, once [`Holdings::sort`] was called.
    held: FxHashMap<Thing, Vec<FdHolder>>,
    /// Processes whose links could not be read: absence proves nothing while there are any.
    pub(super) unread: u64,
    /// inotify instances and watches of the user in question.
    pub(super) inotify: (u64, u64),
}

impl Holdings {
    /// Adds a process that was read in full anyway.
    pub(super) fn add_entries(
        &mut self,
        pid: Pid,
        entries: &[FdEntry],
        is_near: impl Fn() -> bool,
    ) {
        let mut near = None;
        for entry in entries {
            if let Some(side) = Thing::pty_side(entry)
                && *near.get_or_insert_with(&is_near)
            {
                let holder = FdHolder {
                    pid,
                    fd: entry.fd,
                    writes: None,
                };
                self.held.entry(side).or_default().push(holder);
            }
            let Some(thing) = Thing::of(entry) else {
                continue;
            };
            let is_file = matches!(thing, Thing::Path(_, None));
            let writes = entry.mode.filter(|_| is_file).map(Mode::writes);
            let holder = FdHolder {
                pid,
                fd: entry.fd,
                writes,
            };
            self.held.entry(thing).or_default().push(holder);
        }
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

    /// Adds to each descriptor its other holders and the holders of its other end.
    pub(super) fn describe(&self, pid: Pid, entries: &mut [FdEntry], is_near: impl Fn() -> bool) {
        let mut near = None;
        for entry in entries {
            if let Some(side) = Thing::pty_side(entry)
                && *near.get_or_insert_with(&is_near)
            {
                self.describe_pty(pid, entry, &side);
            }
            let Some(thing) = Thing::of(entry) else {
                continue;
            };
            match &mut entry.detail {
                Detail::Pipe(pipe) => (pipe.peer, pipe.peer_more) = self.other_end(&thing),
                Detail::Unix(unix) => {
                    if let Some(peer) = &mut unix.peer {
                        let all = self.of(&Thing::Socket(peer.ino));
                        (peer.holders, peer.holders_more) = listed(all.iter().copied(), all.len());
                    }
                }
                Detail::Inet(inet) => {
                    if let Some(peer) = &mut inet.peer {
                        let all = self.of(&Thing::Socket(peer.ino));
                        (peer.holders, peer.holders_more) = listed(all.iter().copied(), all.len());
                    }
                }
                _ => {}
            }
            self.describe_sharing(pid, entry, &thing);
        }
    }

    /// The holders of the other side of a pseudo-terminal, and the other holders of its master.
    fn describe_pty(&self, pid: Pid, entry: &mut FdEntry, side: &Thing) {
        let (others, _) = self.other_end(side);
        match &mut entry.detail {
            Detail::Pty(pty) => pty.peer = others.unwrap_or_default(),
            Detail::File(file) => file.peer = others.unwrap_or_default(),
            _ => {}
        }
        // Every process in a terminal has it open: only the holder of the master matters.
        if matches!(side, Thing::PtyMaster(_)) {
            self.describe_sharing(pid, entry, side);
        }
    }

    /// Adds the other holders of the same thing.
    fn describe_sharing(&self, pid: Pid, entry: &mut FdEntry, thing: &Thing) {
        let all = self.of(thing);
        let before = &all[..all.partition_point(|holder| holder.pid < pid)];
        let after = &all[all.partition_point(|holder| holder.pid <= pid)..];
        let others = before.iter().chain(after);
        (entry.shared_with, entry.shared_more) =
            listed(others.copied(), before.len() + after.len());
    }

    /// The holders of this socket.
    pub(super) fn of_socket(&self, ino: u64) -> &[FdHolder] {
        self.of(&Thing::Socket(ino))
    }

    fn of(&self, thing: &Thing) -> &[FdHolder] {
        self.held.get(thing).map_or(&[], Vec::as_slice)
    }

    /// Holders of the opposite end; unknown if none was found and some process could not be read.
    fn other_end(&self, thing: &Thing) -> (Option<Vec<FdHolder>>, u64) {
        let opposites = thing.opposites();
        if opposites.is_empty() {
            return (None, 0);
        }
        let lists: Vec<&[FdHolder]> = opposites.iter().map(|thing| self.of(thing)).collect();
        let total = lists.iter().map(|list| list.len()).sum();
        let certain = total > 0 || self.unread == 0;
        let (list, more) = listed(lists.into_iter().flatten().copied(), total);
        (certain.then_some(list), more)
    }
}

/// The holders, ascending, and how many are omitted. If there are too many, each process is named
/// once before any is named twice: the holder matters more than the number of descriptors.
fn listed(holders: impl Iterator<Item = FdHolder>, total: usize) -> (Vec<FdHolder>, u64) {
    let list: Vec<FdHolder> = if total <= MOST_LISTED {
        holders.collect()
    } else {
        let mut last = None;
        let first_of_each = |holder: &FdHolder| last.replace(holder.pid) != Some(holder.pid);
        holders.filter(first_of_each).take(MOST_LISTED).collect()
    };
    let more = total - list.len();
    (list, more as u64)
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

#[cfg(test)]
mod tests {
    use fdguard_core::FdHolder;

    use super::{MOST_LISTED, listed};

    fn holder(pid: u32, fd: u32) -> FdHolder {
        FdHolder {
            pid,
            fd,
            writes: None,
        }
    }

    #[test]
    fn a_few_holders_are_all_listed() {
        let few = [holder(7, 3), holder(7, 4), holder(9, 1)];
        assert_eq!(listed(few.into_iter(), 3), (few.to_vec(), 0));
    }

    #[test]
    fn of_many_holders_every_process_is_named_before_one_is_named_twice() {
        let many = (0..50)
            .map(|fd| holder(7, fd))
            .chain([holder(9, 1), holder(12, 2)]);
        let (list, more) = listed(many, 52);
        assert_eq!(list, [holder(7, 0), holder(9, 1), holder(12, 2)]);
        assert_eq!(more, 49);
        let crowd = (0..100).map(|pid| holder(pid, 0));
        assert_eq!(listed(crowd, 100).0.len(), MOST_LISTED);
    }
}
