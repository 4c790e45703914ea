//! Who else holds the same pipes, sockets and databases: one walk over the links of the others.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};

use fdguard_core::detail::PipeEnd;
use fdguard_core::{Class, Detail, Fd, FdEntry, Holder, Mode, Pid};
use rustix::fs::AtFlags;
use rustix::path::DecInt;

use super::files;
use crate::parse::fdinfo::Fdinfo;
use crate::parse::link::Link;
use crate::parse::stat::Stat;

/// What is held: sockets and pipes by inode, files by path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thing {
    Pipe(u64),
    Socket(u64),
    Path(Vec<u8>),
}

impl Thing {
    /// What of an entry others may hold, too.
    fn of(entry: &FdEntry) -> Option<Self> {
        let ino = entry.id?.ino;
        match entry.class {
            Class::Pipe => Some(Self::Pipe(ino)),
            Class::Tcp(_) | Class::Udp | Class::Unix => Some(Self::Socket(ino)),
            Class::SqliteDb | Class::Fifo if !entry.deleted => {
                Some(Self::Path(entry.target.as_bytes().to_vec()))
            }
            _ => None,
        }
    }
}

/// What somebody wants to know the other holders of.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pipes: HashSet<u64>,
    sockets: HashSet<u64>,
    /// With the inode: in another mount namespace the same path may be another file.
    paths: HashMap<Vec<u8>, u64>,
    /// Whose inotify instances to count, when the ceiling matters.
    pub(super) inotify_of: Option<u32>,
}

impl Interest {
    /// Adds what these descriptors make worth asking.
    pub(super) fn add(&mut self, entries: &[FdEntry]) {
        for entry in entries {
            match Thing::of(entry) {
                Some(Thing::Pipe(ino)) => self.pipes.extend([ino]),
                Some(Thing::Socket(ino)) => self.sockets.extend([ino]),
                Some(Thing::Path(path)) => self.paths.extend(entry.id.map(|id| (path, id.ino))),
                None => {}
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
            && self.inotify_of.is_none()
    }
}

/// One holder, and which end of a pipe it holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    holder: Holder,
    end: Option<PipeEnd>,
}

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: HashMap<Thing, Vec<Held>>,
    /// Processes whose links could not be read: absence proves nothing while there are any.
    pub(super) unread: u64,
    /// inotify instances and watches of the user in question.
    pub(super) inotify: (u64, u64),
}

impl Holdings {
    /// Adds a process that was read in full anyway.
    pub(super) fn add_entries(&mut self, pid: Pid, entries: &[FdEntry]) {
        for entry in entries {
            let Some(thing) = Thing::of(entry) else {
                continue;
            };
            let writes = matches!(thing, Thing::Path(_))
                .then(|| entry.mode.map(Mode::writes))
                .flatten();
            let end = match &entry.detail {
                Detail::Pipe(pipe) => pipe.end,
                _ => None,
            };
            let holder = Holder {
                pid,
                fd: entry.fd,
                writes,
            };
            self.held
                .entry(thing)
                .or_default()
                .push(Held { holder, end });
        }
    }

    /// Walks over the links of one more process.
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
        let mut denied = false;
        for fd in numbers {
            match rustix::fs::readlinkat_raw(&dir, DecInt::new(fd), &mut buffer[..]) {
                Ok(length) => {
                    let text = &buffer[..length];
                    if counts_inotify && text == b"anon_inode:inotify" {
                        self.inotify.0 += 1;
                        self.inotify.1 += watches(base, fd);
                    }
                    self.add_link(
                        Holder {
                            pid,
                            fd,
                            writes: None,
                        },
                        dir.as_fd(),
                        &Link::parse(text),
                        interest,
                    );
                }
                Err(error) => denied |= files::is_denied(error),
            }
        }
        self.unread += u64::from(denied);
    }

    fn add_link(
        &mut self,
        holder: Holder,
        dir: BorrowedFd<'_>,
        link: &Link<'_>,
        interest: &Interest,
    ) {
        let (thing, held) = match link {
            Link::Socket(ino) if interest.sockets.contains(ino) => {
                (Thing::Socket(*ino), Held { holder, end: None })
            }
            Link::Pipe(ino) if interest.pipes.contains(ino) => {
                let end = link_mode(dir, holder.fd).and_then(end_of);
                (Thing::Pipe(*ino), Held { holder, end })
            }
            Link::Path {
                path,
                marked: false,
            } => {
                let Some(ino) = interest.paths.get(*path) else {
                    return;
                };
                let target = rustix::fs::statat(dir, DecInt::new(holder.fd), AtFlags::empty());
                if !target.is_ok_and(|stat| stat.st_ino == *ino) {
                    return;
                }
                let mode = link_mode(dir, holder.fd);
                let writes = mode.map(|(_, writes)| writes);
                let held = Held {
                    holder: Holder { writes, ..holder },
                    end: mode.and_then(end_of),
                };
                (Thing::Path(path.to_vec()), held)
            }
            _ => return,
        };
        self.held.entry(thing).or_default().push(held);
    }

    /// Adds what another walk found.
    pub(super) fn absorb(&mut self, other: Self) {
        for (thing, mut holders) in other.held {
            self.held.entry(thing).or_default().append(&mut holders);
        }
        self.unread += other.unread;
        self.inotify.0 += other.inotify.0;
        self.inotify.1 += other.inotify.1;
    }

    /// Writes into each descriptor who else holds it, and who holds its other end.
    pub(super) fn describe(&self, pid: Pid, entries: &mut [FdEntry]) {
        for entry in entries {
            let Some(thing) = Thing::of(entry) else {
                continue;
            };
            let all = self.held.get(&thing).map_or(&[][..], Vec::as_slice);
            let mut own_end = None;
            match &mut entry.detail {
                Detail::Pipe(pipe) => {
                    pipe.peer = self.other_end(all, pipe.end);
                    own_end = pipe.end;
                }
                Detail::Unix(unix) => {
                    if let Some(peer) = &mut unix.peer {
                        let holders = self.held.get(&Thing::Socket(peer.ino));
                        peer.holders =
                            sorted(holders.into_iter().flatten().map(|held| held.holder));
                    }
                }
                _ => {}
            }
            // Of a pipe, only who holds the same end shares it.
            let shares =
                |held: &&Held| held.holder.pid != pid && (own_end.is_none() || held.end == own_end);
            entry.shared_with = sorted(all.iter().filter(shares).map(|held| held.holder));
        }
    }

    /// Holders of the opposite end; unknown when none was found and somebody could not be read.
    fn other_end(&self, all: &[Held], end: Option<PipeEnd>) -> Option<Vec<Holder>> {
        let end = end?;
        let opposite = |held: &&Held| {
            held.end
                .is_some_and(|theirs| theirs != end || theirs == PipeEnd::Both)
        };
        let found = sorted(all.iter().filter(opposite).map(|held| Holder {
            writes: None,
            ..held.holder
        }));
        let certain = !found.is_empty() || self.unread == 0;
        certain.then_some(found)
    }
}

fn sorted(holders: impl Iterator<Item = Holder>) -> Vec<Holder> {
    let mut list: Vec<Holder> = holders.collect();
    list.sort_unstable();
    list
}

/// Zombies and kernel threads refuse a look, too, but have nothing to show.
fn may_hold_something(base: BorrowedFd<'_>) -> bool {
    let Ok(bytes) = files::read(base, c"stat") else {
        return false;
    };
    Stat::parse(&bytes).is_none_or(|stat| !stat.is_zombie() && !stat.kernel_thread)
}

/// The permission bits of a descriptor link say how the file was opened: for reading, for writing.
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
