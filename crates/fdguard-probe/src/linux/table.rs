//! One process's descriptor table: each number looked at once, never two files in one record.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use fdguard_core::{Class, Fd, FdEntry};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::path::DecInt;

use super::classify::{self, FileStat};
use super::epoll::Registrations;
use super::files;
use crate::parse::fdinfo::Fdinfo;
use crate::parse::link::Link;

/// A number can change hands between two reads; after this many tries it is reported as unstable.
const TRIES: usize = 16;
/// Below this a second thread costs more than it brings.
const WORTH_A_THREAD: usize = 512;
const CHUNK: usize = 128;

/// What was read of one table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Ascending by number.
    pub(super) entries: Vec<FdEntry>,
    /// Numbers of the sockets among them: their class is not known yet.
    pub(super) sockets: Vec<Fd>,
    /// Registrations of the epoll instances among them.
    pub(super) epolls: Vec<Registrations>,
    /// Descriptors that exist but may not be looked at.
    pub(super) denied: u64,
    /// Descriptors that changed hands faster than they could be read.
    pub(super) unstable: u64,
    /// What kept us from reading, where the fault was not the target's: our own table or the
    /// host's is full.
    pub(super) trouble: Option<Errno>,
}

impl Table {
    fn absorb(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
        self.sockets.append(&mut other.sockets);
        self.epolls.append(&mut other.epolls);
        self.denied += other.denied;
        self.unstable += other.unstable;
        self.trouble = self.trouble.or(other.trouble);
    }

    fn add(&mut self, seen: Seen) {
        match seen {
            Seen::Entry(entry) => self.entries.push(entry),
            Seen::Socket(entry) => {
                self.sockets.push(entry.fd);
                self.entries.push(entry);
            }
            Seen::Epoll(entry, registrations) => {
                self.epolls.push((entry.fd, registrations));
                self.entries.push(entry);
            }
            Seen::Gone => {}
            Seen::Denied => self.denied += 1,
            Seen::Unstable => self.unstable += 1,
            Seen::Trouble(error) => self.trouble = Some(error),
        }
    }
}

/// The open directories of one process's table.
#[derive(Debug)]
pub(super) struct TableDir {
    fd: OwnedFd,
    /// Absent where fdinfo cannot be opened: then links are all there is.
    fdinfo: Option<OwnedFd>,
    /// Our own table, to ask about descriptors that we hold for a moment; absent on a made-up tree.
    own: Option<OwnedFd>,
    /// Where the table is our own: the descriptors that the look itself takes, no part of the answer.
    mine: Vec<Fd>,
}

impl TableDir {
    /// Opens the table of the process behind `base`. Fails with the errno of `fd/` itself. For our
    /// own table `proc` is the probe's directory, which is left out as well.
    pub(super) fn open(
        base: BorrowedFd<'_>,
        own: Option<OwnedFd>,
        proc: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Errno> {
        let fd = files::open_dir_at(base, c"fd")?;
        let fdinfo = match files::open_base_at(base, c"fdinfo") {
            Err(error) if files::is_ours(error) => return Err(error),
            opened => opened.ok(),
        };
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd().cast_unsigned();
        let mine = proc.map_or_else(Vec::new, |proc| {
            let optional = [fdinfo.as_ref(), own.as_ref()];
            let optional = optional.into_iter().flatten().map(AsFd::as_fd);
            [proc, base, fd.as_fd()]
                .into_iter()
                .chain(optional)
                .map(number)
                .collect()
        });
        Ok(Self {
            fd,
            fdinfo,
            own,
            mine,
        })
    }

    /// The directory of links.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The numbers in use, ours left out.
    pub(super) fn numbers(&self) -> Result<Vec<Fd>, Errno> {
        let mut numbers = files::numbers(self.fd.as_fd())?;
        if !self.mine.is_empty() {
            numbers.retain(|number| !self.mine.contains(number));
        }
        Ok(numbers)
    }

    /// Number of entries without listing them (Linux 6.2 and later); absent before.
    pub(super) fn count(&self) -> Option<u64> {
        let size = rustix::fs::fstat(&self.fd).ok()?.st_size;
        let size = u64::try_from(size).ok().filter(|size| *size > 0)?;
        size.checked_sub(self.mine.len() as u64)
    }

    /// Looks at each of these numbers, with a second thread where that pays.
    pub(super) fn read(&self, numbers: &[Fd], threads: usize) -> Table {
        if numbers.len() < WORTH_A_THREAD || threads < 2 {
            return self.read_one_by_one(numbers);
        }
        let next = AtomicUsize::new(0);
        let work = || {
            let mut reader = Reader::new(self);
            let mut part = Table::default();
            loop {
                let start = next.fetch_add(CHUNK, Ordering::Relaxed);
                let Some(rest) = numbers.get(start..).filter(|rest| !rest.is_empty()) else {
                    break;
                };
                for number in &rest[..CHUNK.min(rest.len())] {
                    part.add(reader.look(*number));
                }
            }
            part
        };
        let mut table = Table::default();
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
                .collect();
            table.absorb(work());
            for other in others {
                match other.join() {
                    Ok(part) => table.absorb(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        table.entries.sort_unstable_by_key(|entry| entry.fd);
        table
    }

    fn read_one_by_one(&self, numbers: &[Fd]) -> Table {
        let mut reader = Reader::new(self);
        let mut table = Table::default();
        table.entries.reserve(numbers.len());
        for number in numbers {
            table.add(reader.look(*number));
        }
        table
    }
}

/// The outcome of one look.
enum Seen {
    Entry(FdEntry),
    Socket(FdEntry),
    Epoll(FdEntry, Registrations1),
    Gone,
    Denied,
    Unstable,
    Trouble(Errno),
}

type Registrations1 = Vec<crate::parse::fdinfo::EpollTarget>;

impl Seen {
    fn failed(error: Errno) -> Self {
        if files::is_denied(error) {
            Self::Denied
        } else if files::is_ours(error) {
            Self::Trouble(error)
        } else {
            Self::Gone
        }
    }
}

/// What kind of pseudo file system a mount is. Learned from the first descriptor on it: afterwards
/// the mount id in fdinfo tells the kind, and one read makes the whole record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mount {
    Sockets,
    Pipes,
    Anonymous,
}

/// Looks at descriptors one at a time, with buffers of its own.
struct Reader<'a> {
    dir: &'a TableDir,
    mounts: Vec<(u64, Mount)>,
    info: Vec<u8>,
    link: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(dir: &'a TableDir) -> Self {
        Self {
            dir,
            mounts: Vec::new(),
            info: vec![0; 4096],
            link: vec![0; 4096 + 16],
        }
    }

    fn look(&mut self, fd: Fd) -> Seen {
        for _ in 0..TRIES {
            match self.try_look(fd) {
                Ok(Some(seen)) => return seen,
                Ok(None) => {}
                Err(error) => return Seen::failed(error),
            }
        }
        Seen::Unstable
    }

    /// One try; `None` when the number changed hands in the middle of it.
    fn try_look(&mut self, fd: Fd) -> Result<Option<Seen>, Errno> {
        let mut info_bytes = std::mem::take(&mut self.info);
        let result = match self.read_info(fd, &mut info_bytes) {
            Ok(info) => self.by_info(fd, &info),
            Err(error) => Err(error),
        };
        self.info = info_bytes;
        result
    }

    fn read_info<'b>(&self, fd: Fd, buffer: &'b mut Vec<u8>) -> Result<Fdinfo<'b>, Errno> {
        let Some(fdinfo) = &self.dir.fdinfo else {
            return Ok(Fdinfo::default());
        };
        match files::read_into(fdinfo, DecInt::new(fd), buffer) {
            Ok(bytes) => Ok(Fdinfo::parse(bytes)),
            // A made-up tree may lack the file; on the real one the number is gone.
            Err(Errno::NOENT) if self.dir.own.is_none() => Ok(Fdinfo::default()),
            Err(error) => Err(error),
        }
    }

    fn by_info(&mut self, fd: Fd, info: &Fdinfo<'_>) -> Result<Option<Seen>, Errno> {
        let mount = info
            .mnt
            .and_then(|mnt| self.mounts.iter().find(|(known, _)| *known == mnt));
        match (mount.map(|(_, kind)| *kind), info.ino) {
            (Some(Mount::Sockets), Some(ino)) => {
                return Ok(Some(Seen::Socket(classify::socket(fd, info, ino))));
            }
            (Some(Mount::Pipes), Some(ino)) => {
                return Ok(Some(Seen::Entry(classify::pipe(fd, info, ino))));
            }
            (Some(Mount::Anonymous), _) => {
                if let Some(class) = classify::anonymous_by_info(info) {
                    return Ok(Some(anonymous(fd, info, class)));
                }
            }
            _ => {}
        }
        self.by_link(fd, info)
    }

    fn by_link(&mut self, fd: Fd, info: &Fdinfo<'_>) -> Result<Option<Seen>, Errno> {
        let mut text_bytes = std::mem::take(&mut self.link);
        let result = self.read_link(fd, info, &mut text_bytes);
        self.link = text_bytes;
        result
    }

    fn read_link(
        &mut self,
        fd: Fd,
        info: &Fdinfo<'_>,
        buffer: &mut [u8],
    ) -> Result<Option<Seen>, Errno> {
        // Held for a moment, the file cannot change under us: its name and its inode are one file's.
        let held = match &self.dir.own {
            Some(own) => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                let held = rustix::fs::openat(&self.dir.fd, DecInt::new(fd), flags, Mode::empty())?;
                Some((own, held))
            }
            None => None,
        };
        let length = match &held {
            Some((own, held)) => {
                rustix::fs::readlinkat_raw(own, DecInt::from_fd(held), &mut *buffer)?
            }
            None => rustix::fs::readlinkat_raw(&self.dir.fd, DecInt::new(fd), &mut *buffer)?,
        };
        let text = &buffer[..length];
        let same = |ino: u64| info.ino.is_none_or(|known| known == ino);
        Ok(match Link::parse(text) {
            Link::Socket(ino) if same(ino) => {
                self.learn(info, Mount::Sockets);
                Some(Seen::Socket(classify::socket(fd, info, ino)))
            }
            Link::Pipe(ino) if same(ino) => {
                self.learn(info, Mount::Pipes);
                Some(Seen::Entry(classify::pipe(fd, info, ino)))
            }
            Link::Anonymous(raw) => {
                let class = classify::anonymous_class(raw);
                let agrees = self.dir.fdinfo.is_none() || classify::agrees(&class, info);
                if agrees {
                    self.learn(info, Mount::Anonymous);
                }
                agrees.then(|| anonymous(fd, info, class))
            }
            Link::Numbered { name, ino } if same(ino) => {
                Some(Seen::Entry(classify::numbered(fd, info, name, text)))
            }
            Link::Socket(_) | Link::Pipe(_) | Link::Numbered { .. } => None,
            Link::Path { path, marked } => {
                let held = held.as_ref().map(|(own, held)| (own.as_fd(), held.as_fd()));
                self.path(fd, info, text, (path, marked), held)
            }
            Link::Other(text) => Some(Seen::Entry(classify::other(fd, info, text))),
        })
    }

    /// A path, cut off at the kernel's mark where it had one; `text` is the whole.
    fn path(
        &self,
        fd: Fd,
        info: &Fdinfo<'_>,
        text: &[u8],
        (path, marked): (&[u8], bool),
        held: Option<Hold<'_>>,
    ) -> Option<Seen> {
        let stat = held.and_then(|(_, held)| stat_held(held));
        if !is_same_file(info, stat.as_ref(), held) {
            return None;
        }
        // A living file with the mark: lost this one of its names, or is named like that.
        let literal =
            marked && stat.is_some_and(|stat| stat.links > 0 && self.is_named(text, stat.ino));
        let (path, marked) = if literal {
            (text, false)
        } else {
            (path, marked)
        };
        let entry = if is_queue(path, held) {
            classify::queue(fd, info, path, stat.as_ref())
        } else {
            classify::path(fd, info, path, marked, stat.as_ref())
        };
        Some(Seen::Entry(entry))
    }

    /// Whether a file of this name, mark and all, lies in the target's own file tree.
    fn is_named(&self, text: &[u8], ino: u64) -> bool {
        let path = [b"../root", text].concat();
        rustix::fs::statat(&self.dir.fd, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_ino == ino)
    }

    fn learn(&mut self, info: &Fdinfo<'_>, kind: Mount) {
        let Some(mnt) = info.mnt.filter(|_| info.ino.is_some()) else {
            return;
        };
        if !self.mounts.contains(&(mnt, kind)) {
            self.mounts.push((mnt, kind));
        }
    }
}

fn anonymous(fd: Fd, info: &Fdinfo<'_>, class: Class) -> Seen {
    let is_epoll = class == Class::Eventpoll;
    let entry = classify::anonymous(fd, info, class);
    if is_epoll {
        Seen::Epoll(entry, info.epoll_targets().collect())
    } else {
        Seen::Entry(entry)
    }
}

/// Our own table, and a descriptor in it that we hold for a moment.
type Hold<'a> = (BorrowedFd<'a>, BorrowedFd<'a>);

/// Whether fdinfo speaks of the file that we hold. Some file systems (overlay, FUSE) show one inode
/// number in fdinfo and another in stat: there, the fdinfo of our own hold on it counts.
fn is_same_file(info: &Fdinfo<'_>, stat: Option<&FileStat>, held: Option<Hold<'_>>) -> bool {
    let (Some(ino), Some(stat), Some((own, held))) = (info.ino, stat, held) else {
        return true;
    };
    if stat.ino == ino {
        return true;
    }
    let mut buffer = Vec::new();
    let path = format!("../fdinfo/{}", held.as_raw_fd());
    files::read_into(own, path, &mut buffer)
        .map(Fdinfo::parse)
        .is_ok_and(|ours| ours.ino == info.ino && ours.mnt == info.mnt)
}

/// Whether this is a POSIX message queue: a regular file by its mode, on a mount of the kernel's
/// own, so that its path is the bare name.
fn is_queue(path: &[u8], held: Option<Hold<'_>>) -> bool {
    let bare = path.iter().filter(|byte| **byte == b'/').count() == 1;
    bare && held.is_some_and(|(_, held)| files::is_mqueue(held))
}

/// Asks the kernel's caches only: a dead network file system must not hang us.
fn stat_held(held: BorrowedFd<'_>) -> Option<FileStat> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mask = StatxFlags::TYPE
        | StatxFlags::MODE
        | StatxFlags::NLINK
        | StatxFlags::INO
        | StatxFlags::SIZE;
    let stat = rustix::fs::statx(held, c"", flags, mask).ok()?;
    Some(FileStat {
        mode: stat.stx_mode,
        links: stat.stx_nlink,
        ino: stat.stx_ino,
        size: stat.stx_size,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
    })
}
