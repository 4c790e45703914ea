//! Who else holds the same pipes, sockets and databases: one walk over the links of the others.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd};

use fdguard_core::detail::PipeEnd;
use fdguard_core::{Class, Detail, Fd, FdEntry, Holder, Pid};
use rustix::fs::AtFlags;
use rustix::path::DecInt;

use super::files;
use crate::parse::fdinfo::Fdinfo;
use crate::parse::link::Link;

/// What somebody wants to know the other holders of.
#[derive(Debug, Default)]
pub(super) struct Interest {
    pipes: HashSet<u64>,
    sockets: HashSet<u64>,
    paths: HashSet<Vec<u8>>,
    /// Whose inotify instances to count, when the ceiling matters.
    pub(super) inotify_of: Option<u32>,
}

/// Who holds what.
#[derive(Debug, Default)]
pub(super) struct Holdings {
    pipes: HashMap<u64, Vec<(Holder, Option<PipeEnd>)>>,
    sockets: HashMap<u64, Vec<Holder>>,
    paths: HashMap<Vec<u8>, Vec<Holder>>,
    /// Processes whose links could not be read: absence proves nothing while there are any.
    pub(super) unread: u64,
    /// inotify instances and watches of the user in question.
    pub(super) inotify: (u64, u64),
}

impl Interest {
    /// Adds what these descriptors make worth asking.
    pub(super) fn add(&mut self, entries: &[FdEntry]) {
        for entry in entries {
            let ino = entry.id.map(|id| id.ino);
            match (&entry.class, &entry.detail) {
                (Class::Pipe, _) => self.pipes.extend(ino),
                (_, Detail::Unix(unix)) => {
                    self.sockets.extend(ino);
                    self.sockets.extend(unix.peer.as_ref().map(|peer| peer.ino));
                }
                (Class::Tcp(_) | Class::Udp, _) => self.sockets.extend(ino),
                (Class::SqliteDb | Class::Fifo, _) => {
                    self.paths.insert(entry.target.as_bytes().to_vec());
                }
                _ => {}
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

impl Holdings {
    /// Adds a process that was read in full anyway.
    pub(super) fn add_entries(&mut self, pid: Pid, entries: &[FdEntry]) {
        for entry in entries {
            let writes = entry.mode.map(fdguard_core::Mode::writes);
            let holder = Holder {
                pid,
                fd: entry.fd,
                writes,
            };
            let bare = Holder {
                writes: None,
                ..holder
            };
            match (&entry.class, &entry.detail, entry.id) {
                (Class::Pipe, Detail::Pipe(pipe), Some(id)) => {
                    self.pipes.entry(id.ino).or_default().push((bare, pipe.end));
                }
                (Class::Tcp(_) | Class::Udp | Class::Unix, _, Some(id)) => {
                    self.sockets.entry(id.ino).or_default().push(bare);
                }
                (Class::SqliteDb | Class::Fifo, _, _) => {
                    self.paths
                        .entry(entry.target.as_bytes().to_vec())
                        .or_default()
                        .push(holder);
                }
                _ => {}
            }
        }
    }

    /// Walks over the links of one more process.
    pub(super) fn add_links(&mut self, pid: Pid, base: BorrowedFd<'_>, interest: &Interest) {
        let dir = match files::open_dir_at(base, c"fd") {
            Ok(dir) => dir,
            Err(error) => {
                self.unread += u64::from(files::is_denied(error));
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
                    self.add_link(pid, fd, dir.as_fd(), &Link::parse(text), interest);
                }
                Err(error) => denied |= files::is_denied(error),
            }
        }
        self.unread += u64::from(denied);
    }

    fn add_link(
        &mut self,
        pid: Pid,
        fd: Fd,
        dir: BorrowedFd<'_>,
        link: &Link<'_>,
        interest: &Interest,
    ) {
        let bare = Holder {
            pid,
            fd,
            writes: None,
        };
        match link {
            Link::Pipe(ino) if interest.pipes.contains(ino) => {
                let end = link_mode(dir, fd).and_then(|(reads, writes)| end_of(reads, writes));
                self.pipes.entry(*ino).or_default().push((bare, end));
            }
            Link::Socket(ino) if interest.sockets.contains(ino) => {
                self.sockets.entry(*ino).or_default().push(bare);
            }
            Link::Path {
                path,
                marked: false,
            } if interest.paths.contains(*path) => {
                let writes = link_mode(dir, fd).map(|(_, writes)| writes);
                self.paths
                    .entry(path.to_vec())
                    .or_default()
                    .push(Holder { writes, ..bare });
            }
            _ => {}
        }
    }

    /// Adds what another walk found.
    pub(super) fn absorb(&mut self, other: Self) {
        for (ino, mut holders) in other.pipes {
            self.pipes.entry(ino).or_default().append(&mut holders);
        }
        for (ino, mut holders) in other.sockets {
            self.sockets.entry(ino).or_default().append(&mut holders);
        }
        for (path, mut holders) in other.paths {
            self.paths.entry(path).or_default().append(&mut holders);
        }
        self.unread += other.unread;
        self.inotify.0 += other.inotify.0;
        self.inotify.1 += other.inotify.1;
    }

    /// Writes into each descriptor who else holds it, and who holds its other end.
    pub(super) fn describe(&self, pid: Pid, entries: &mut [FdEntry]) {
        for entry in entries {
            let Some(id) = entry.id else { continue };
            match (&entry.class, &mut entry.detail) {
                (Class::Pipe, Detail::Pipe(pipe)) => {
                    let all = self.pipes.get(&id.ino).map_or(&[][..], Vec::as_slice);
                    pipe.peer = self.other_end(all, pipe.end);
                    entry.shared_with = same_end(all, pipe.end, pid);
                }
                (Class::Unix, Detail::Unix(unix)) => {
                    if let Some(peer) = &mut unix.peer {
                        peer.holders = self.sockets.get(&peer.ino).cloned().unwrap_or_default();
                    }
                    entry.shared_with = others(self.sockets.get(&id.ino), pid);
                }
                (Class::Tcp(_) | Class::Udp, _) => {
                    entry.shared_with = others(self.sockets.get(&id.ino), pid)
                }
                (Class::SqliteDb | Class::Fifo, _) if !entry.deleted => {
                    entry.shared_with = others(self.paths.get(entry.target.as_bytes()), pid);
                }
                _ => {}
            }
        }
    }

    /// Holders of the opposite end; unknown when none was found and somebody could not be read.
    fn other_end(
        &self,
        all: &[(Holder, Option<PipeEnd>)],
        end: Option<PipeEnd>,
    ) -> Option<Vec<Holder>> {
        let end = end?;
        let mut found: Vec<Holder> = all
            .iter()
            .filter(|(_, theirs)| {
                theirs.is_some_and(|theirs| theirs != end || theirs == PipeEnd::Both)
            })
            .map(|(holder, _)| *holder)
            .collect();
        found.sort_unstable();
        let certain = !found.is_empty() || self.unread == 0;
        certain.then_some(found)
    }
}

fn same_end(all: &[(Holder, Option<PipeEnd>)], end: Option<PipeEnd>, pid: Pid) -> Vec<Holder> {
    let mut found: Vec<Holder> = all
        .iter()
        .filter(|(holder, theirs)| holder.pid != pid && *theirs == end)
        .map(|(holder, _)| *holder)
        .collect();
    found.sort_unstable();
    found
}

fn others(holders: Option<&Vec<Holder>>, pid: Pid) -> Vec<Holder> {
    let mut found: Vec<Holder> = holders
        .into_iter()
        .flatten()
        .filter(|holder| holder.pid != pid)
        .copied()
        .collect();
    found.sort_unstable();
    found
}

/// The permission bits of a descriptor link say how the file was opened.
fn link_mode(dir: BorrowedFd<'_>, fd: Fd) -> Option<(bool, bool)> {
    let stat = rustix::fs::statat(dir, DecInt::new(fd), AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some((stat.st_mode & 0o400 != 0, stat.st_mode & 0o200 != 0))
}

fn end_of(reads: bool, writes: bool) -> Option<PipeEnd> {
    match (reads, writes) {
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
