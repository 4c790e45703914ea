//! One process's descriptor table: each number looked at once, never two files in one record.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use fdguard_core::{Class, Fd, FdEntry};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::path::{Arg, DecInt};

use super::classify::{self, FileStat};
use super::epoll::Registrations;
use super::files::{self, Listing};
use super::mounts::{Mount, Mounts};
use crate::parse::fdinfo::Fdinfo;
use crate::parse::link::Link;
use crate::workers;

/// A number can change hands between two reads; after this many tries it is reported as unstable.
const TRIES: usize = 16;
/// Below this a second thread costs more than it brings.
const WORTH_A_THREAD: u64 = 512;
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
    /// How many numbers were in use when they were listed.
    pub(super) listed: u64,
    /// Descriptors that exist but may not be looked at.
    pub(super) denied: u64,
    /// Descriptors that changed hands faster than they could be read.
    pub(super) unstable: u64,
    /// What kept us from reading, where the fault was not the target's: our own table or the host's
    /// is full.
    pub(super) trouble: Option<Errno>,
}

impl Table {
    fn absorb(&mut self, mut other: Self) {
        self.entries.append(&mut other.entries);
        self.sockets.append(&mut other.sockets);
        self.epolls.append(&mut other.epolls);
        self.listed += other.listed;
        self.denied += other.denied;
        self.unstable += other.unstable;
        self.trouble = self.trouble.or(other.trouble);
    }

    /// How many descriptors there were, readable or not.
    pub(super) fn count(&self) -> u64 {
        self.entries.len() as u64 + self.denied + self.unstable
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
    /// Whether the numbers can be listed there.
    lists_fdinfo: bool,
    /// Our own table, to ask about descriptors that we hold for a moment; absent on a made-up tree.
    own: Option<Arc<OwnedFd>>,
    /// Which mounts hold nothing but sockets, pipes or anonymous inodes.
    mounts: Arc<Mounts>,
    /// When the table is our own: the numbers that are the probe's and not part of the answer.
    mine: Vec<Fd>,
}

impl TableDir {
    /// Opens the table of the process behind `base`. Fails with the errno of `fd/` itself. `mine` are
    /// the probe's descriptors when the process is our own.
    pub(super) fn open(
        base: BorrowedFd<'_>,
        own: Option<Arc<OwnedFd>>,
        mounts: Arc<Mounts>,
        mine: &[Fd],
    ) -> Result<Self, Errno> {
        let fd = files::open_dir_at(base, c"fd")?;
        let listable = files::open_dir_at(base, c"fdinfo");
        let lists_fdinfo = listable.is_ok() && own.is_some();
        let fdinfo = match listable {
            Err(error) if files::is_ours(error) => return Err(error),
            // Kept all the same: each file in it will say that it may not be read.
            Err(error) if files::is_denied(error) => files::open_base_at(base, c"fdinfo").ok(),
            opened => opened.ok(),
        };
        let mut mine = mine.to_vec();
        if !mine.is_empty() {
            mine.push(files::number_of(&fd));
            mine.extend(fdinfo.as_ref().map(files::number_of));
        }
        Ok(Self {
            fd,
            fdinfo,
            lists_fdinfo,
            own,
            mounts,
            mine,
        })
    }

    /// The directory of links.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// What to list: it makes the kernel remember each name, and those of fdinfo are opened next.
    fn listed(&self) -> BorrowedFd<'_> {
        let fdinfo = self.fdinfo.as_ref().filter(|_| self.lists_fdinfo);
        fdinfo.unwrap_or(&self.fd).as_fd()
    }

    /// The numbers in use, ours left out.
    pub(super) fn numbers(&self) -> Result<Vec<Fd>, Errno> {
        let mut numbers = files::numbers(self.listed())?;
        numbers.retain(|number| !self.mine.contains(number));
        Ok(numbers)
    }

    /// Number of entries without listing them (Linux 6.2 and later); absent before.
    pub(super) fn count(&self) -> Option<u64> {
        let size = rustix::fs::fstat(&self.fd).ok()?.st_size;
        let size = u64::try_from(size).ok().filter(|size| *size > 0)?;
        Some(size - (self.mine.len() as u64).min(size))
    }

    /// Looks at every number there is, with more threads where that pays.
    pub(super) fn read_all(&self, threads: usize) -> Result<Table, Errno> {
        let is_large = self.count().is_none_or(|count| count >= WORTH_A_THREAD);
        let mut buffer = vec![MaybeUninit::uninit(); 1 << 14];
        let listing = Mutex::new(Listing::of(self.listed(), &mut buffer)?);
        let parts = workers::run(if is_large { threads } else { 1 }, || {
            self.read_from(&listing)
        });
        let mut table = Table::default();
        for part in parts {
            table.absorb(part?);
        }
        table.entries.sort_unstable_by_key(|entry| entry.fd);
        Ok(table)
    }

    fn read_from(&self, listing: &Mutex<Listing<'_>>) -> Result<Table, Errno> {
        let mut reader = Reader::new(self);
        let mut table = Table::default();
        let mut numbers = Vec::with_capacity(CHUNK);
        loop {
            numbers.clear();
            listing
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(CHUNK, &mut numbers)?;
            if numbers.is_empty() {
                return Ok(table);
            }
            for number in numbers.iter().filter(|number| !self.mine.contains(number)) {
                table.listed += 1;
                table.add(reader.look(*number));
            }
        }
    }

    /// Looks at each of these numbers.
    pub(super) fn read(&self, numbers: &[Fd]) -> Table {
        let mut reader = Reader::new(self);
        let mut table = Table::default();
        for number in numbers {
            table.listed += 1;
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

/// Looks at descriptors one at a time, with buffers of its own.
struct Reader<'a> {
    dir: &'a TableDir,
    info: Vec<u8>,
    link: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(dir: &'a TableDir) -> Self {
        Self {
            dir,
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
        match (info.mnt.and_then(|mnt| self.dir.mounts.kind(mnt)), info.ino) {
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
        let mut buffer = std::mem::take(&mut self.link);
        let seen = match self.by_name(fd, info, &mut buffer) {
            Ok(None) => self.by_held(fd, info, &mut buffer),
            seen => seen,
        };
        self.link = buffer;
        seen
    }

    /// The cheap way for files on local file systems: the name in the link is looked up, and when it
    /// names the very inode that fdinfo speaks of, all of it belongs together. `None` when it does not.
    fn by_name(&self, fd: Fd, info: &Fdinfo<'_>, buffer: &mut [u8]) -> Result<Option<Seen>, Errno> {
        if self.dir.own.is_none() || !info.mnt.is_some_and(|mnt| self.dir.mounts.is_local(mnt)) {
            return Ok(None);
        }
        let length = rustix::fs::readlinkat_raw(&self.dir.fd, DecInt::new(fd), &mut *buffer)?;
        let Link::Path {
            path,
            marked: false,
        } = Link::parse(&buffer[..length])
        else {
            return Ok(None);
        };
        let Some(stat) = stat_path(path) else {
            return Ok(None);
        };
        let same = Some(stat.ino) == info.ino && Some(stat.mnt) == info.mnt;
        Ok(same.then(|| Seen::Entry(classify::path(fd, info, path, false, Some(&stat)))))
    }

    /// The sure way: held for a moment, the file cannot change under us, and its name and its inode are
    /// one file's. `None` when it is not the one that fdinfo spoke of.
    fn by_held(&self, fd: Fd, info: &Fdinfo<'_>, buffer: &mut [u8]) -> Result<Option<Seen>, Errno> {
        let Some(own) = &self.dir.own else {
            let length = rustix::fs::readlinkat_raw(&self.dir.fd, DecInt::new(fd), &mut *buffer)?;
            return Ok(self.by_text(fd, info, &buffer[..length], None));
        };
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held = rustix::fs::openat(&self.dir.fd, DecInt::new(fd), flags, Mode::empty())?;
        let length = rustix::fs::readlinkat_raw(own, DecInt::from_fd(&held), &mut *buffer)?;
        Ok(self.by_text(fd, info, &buffer[..length], Some(&held)))
    }

    fn by_text(
        &self,
        fd: Fd,
        info: &Fdinfo<'_>,
        text: &[u8],
        held: Option<&OwnedFd>,
    ) -> Option<Seen> {
        let same = |ino: u64| info.ino.is_none_or(|known| known == ino);
        match Link::parse(text) {
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
                if self.dir.fdinfo.is_some() && !classify::agrees(&class, info) {
                    return None;
                }
                self.learn(info, Mount::Anonymous);
                Some(anonymous(fd, info, class))
            }
            Link::Numbered { name, ino } if same(ino) => {
                Some(Seen::Entry(classify::numbered(fd, info, name, text)))
            }
            Link::Socket(_) | Link::Pipe(_) | Link::Numbered { .. } => None,
            Link::Path { path, marked } => self.by_path(fd, info, text, (path, marked), held),
            Link::Other(text) => Some(Seen::Entry(classify::other(fd, info, text))),
        }
    }

    /// A path, cut off at the kernel's mark where it had one; `text` is the whole.
    fn by_path(
        &self,
        fd: Fd,
        info: &Fdinfo<'_>,
        text: &[u8],
        (path, marked): (&[u8], bool),
        held: Option<&OwnedFd>,
    ) -> Option<Seen> {
        let stat = held.and_then(|held| stat_held(held.as_fd()));
        if let (Some(held), Some(stat)) = (held, &stat)
            && !self.is_same_file(info, held, stat)
        {
            return None;
        }
        // A living file with the mark: it lost this one of its names, or is named like that.
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

    /// Whether fdinfo speaks of the file that we hold. Some file systems (overlay, FUSE) show one inode
    /// number in fdinfo and another in stat: there our own fdinfo of the same file decides.
    fn is_same_file(&self, info: &Fdinfo<'_>, held: &OwnedFd, stat: &FileStat) -> bool {
        if info.ino.is_none_or(|ino| ino == stat.ino)
            && info.mnt.is_none_or(|mnt| mnt == stat.mnt || stat.mnt == 0)
        {
            return true;
        }
        let Some(own) = &self.dir.own else {
            return true;
        };
        let path = format!("../fdinfo/{}", files::number_of(held));
        files::read(own, path).is_ok_and(|bytes| {
            let mine = Fdinfo::parse(&bytes);
            mine.ino == info.ino && mine.mnt == info.mnt
        })
    }

    fn learn(&self, info: &Fdinfo<'_>, kind: Mount) {
        if let (Some(mnt), Some(_)) = (info.mnt, info.ino) {
            self.dir.mounts.learn(mnt, kind);
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

/// Whether this is a POSIX message queue: a regular file by its mode, on a mount of the kernel's own, so
/// that its path is the bare name.
fn is_queue(path: &[u8], held: Option<&OwnedFd>) -> bool {
    let bare = path.iter().filter(|byte| **byte == b'/').count() == 1;
    bare && held.is_some_and(files::is_mqueue)
}

fn stat_held(held: BorrowedFd<'_>) -> Option<FileStat> {
    stat(held, c"", AtFlags::EMPTY_PATH)
}

fn stat_path(path: &[u8]) -> Option<FileStat> {
    stat(
        rustix::fs::CWD,
        path,
        AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW,
    )
}

/// Asks the kernel's caches only: a dead network file system must not hang us.
fn stat(base: BorrowedFd<'_>, path: impl Arg, flags: AtFlags) -> Option<FileStat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let stat = rustix::fs::statx(base, path, flags | AtFlags::STATX_DONT_SYNC, mask).ok()?;
    let knows_mount = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    Some(FileStat {
        mode: stat.stx_mode,
        links: stat.stx_nlink,
        ino: stat.stx_ino,
        mnt: if knows_mount { stat.stx_mnt_id } else { 0 },
        size: stat.stx_size,
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
    })
}
