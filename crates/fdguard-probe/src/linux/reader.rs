//! Reads one descriptor at a time: a record never mixes two files.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use fdguard_core::Fd;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::path::{Arg, DecInt};

use super::classify::{ClassifiedEntry, FileStat, RawEntry, RawFile};
use super::files;
use super::mounts::Mount;
use super::table::TableDir;
use crate::anonymous;
use fdguard_proc::fdinfo::Fdinfo;
use fdguard_proc::link::Link;

/// A number can be reused between two reads; after this many tries it is reported as unstable.
const TRIES: usize = 16;

/// Why a number could not be read.
pub(super) enum ReadFailure {
    Gone,
    Denied,
    Unstable,
    Trouble(Errno),
}

impl From<Errno> for ReadFailure {
    fn from(error: Errno) -> Self {
        if files::is_denied(error) {
            Self::Denied
        } else if files::is_ours(error) {
            Self::Trouble(error)
        } else {
            Self::Gone
        }
    }
}

/// Reads descriptors one at a time, with its own buffers.
pub(super) struct Reader<'a> {
    dir: &'a TableDir,
    info: Vec<u8>,
    link: Vec<u8>,
}

impl<'a> Reader<'a> {
    /// A reader of this table.
    pub(super) fn new(dir: &'a TableDir) -> Self {
        Self {
            dir,
            info: vec![0; 4096],
            link: vec![0; 4096 + 16],
        }
    }

    /// Reads one number, again while it is being reused.
    pub(super) fn read_entry(&mut self, fd: Fd) -> Result<ClassifiedEntry, ReadFailure> {
        for _ in 0..TRIES {
            if let Some(entry) = self.try_look(fd)? {
                return Ok(entry);
            }
        }
        Err(ReadFailure::Unstable)
    }

    /// One try; `None` if the number was reused in the middle of it.
    fn try_look(&mut self, fd: Fd) -> Result<Option<ClassifiedEntry>, Errno> {
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
            // A simulated tree may lack the file; on the real one the number is gone.
            Err(Errno::NOENT) if self.dir.own.is_none() => Ok(Fdinfo::default()),
            Err(error) => Err(error),
        }
    }

    fn by_info(&mut self, fd: Fd, info: &Fdinfo<'_>) -> Result<Option<ClassifiedEntry>, Errno> {
        let file = match (info.mnt.and_then(|mnt| self.dir.mounts.kind(mnt)), info.ino) {
            (Some(Mount::Sockets), Some(ino)) => Some(RawFile::Socket(ino)),
            (Some(Mount::Pipes), Some(ino)) => Some(RawFile::Pipe(ino)),
            (Some(Mount::Anonymous), _) => anonymous::class_by_info(info).map(RawFile::Anonymous),
            _ => None,
        };
        match file {
            Some(file) => Ok(Some(RawEntry { fd, info, file }.classify())),
            None => self.by_link(fd, info),
        }
    }

    fn by_link(&mut self, fd: Fd, info: &Fdinfo<'_>) -> Result<Option<ClassifiedEntry>, Errno> {
        let mut buffer = std::mem::take(&mut self.link);
        let seen = match self.by_name(fd, info, &mut buffer) {
            Ok(None) => self.by_held(fd, info, &mut buffer),
            seen => seen,
        };
        self.link = buffer;
        seen
    }

    /// The cheap way for files on local file systems: it looks up the name in the link; if that has
    /// the inode in fdinfo, everything belongs together. `None` if it does not.
    fn by_name(
        &self,
        fd: Fd,
        info: &Fdinfo<'_>,
        buffer: &mut [u8],
    ) -> Result<Option<ClassifiedEntry>, Errno> {
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
        let file = RawFile::Path {
            path,
            marked: false,
            stat: Some(stat),
        };
        Ok(same.then(|| RawEntry { fd, info, file }.classify()))
    }

    /// The safe way: a file that is held open cannot change, and its name and its inode belong
    /// together. `None` if it is not the one in fdinfo.
    fn by_held(
        &self,
        fd: Fd,
        info: &Fdinfo<'_>,
        buffer: &mut [u8],
    ) -> Result<Option<ClassifiedEntry>, Errno> {
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
    ) -> Option<ClassifiedEntry> {
        let same = |ino: u64| info.ino.is_none_or(|known| known == ino);
        let file = match Link::parse(text) {
            Link::Socket(ino) if same(ino) => {
                self.learn(info, Mount::Sockets);
                RawFile::Socket(ino)
            }
            Link::Pipe(ino) if same(ino) => {
                self.learn(info, Mount::Pipes);
                RawFile::Pipe(ino)
            }
            Link::Anonymous(raw) => {
                let class = anonymous::class_of(raw);
                if self.dir.fdinfo.is_some() && !anonymous::agrees(&class, info) {
                    return None;
                }
                self.learn(info, Mount::Anonymous);
                RawFile::Anonymous(class)
            }
            Link::Numbered { name, ino } if same(ino) => RawFile::Other { name, text },
            Link::Socket(_) | Link::Pipe(_) | Link::Numbered { .. } => return None,
            Link::Path { path, marked } => self.by_path(info, text, (path, marked), held)?,
            Link::Other(name) => RawFile::Other { name, text },
        };
        Some(RawEntry { fd, info, file }.classify())
    }

    /// A path without the kernel's deletion mark; `text` is the whole.
    fn by_path<'b>(
        &self,
        info: &Fdinfo<'_>,
        text: &'b [u8],
        (path, marked): (&'b [u8], bool),
        held: Option<&OwnedFd>,
    ) -> Option<RawFile<'b>> {
        let stat = held.and_then(|held| stat_held(held.as_fd()));
        if let (Some(held), Some(stat)) = (held, &stat)
            && !self.is_same_file(info, held, stat)
        {
            return None;
        }
        // An existing file with the mark: it lost this one of its names, or its name ends like
        // that.
        let literal =
            marked && stat.is_some_and(|stat| stat.links > 0 && self.is_named(text, stat.ino));
        let (path, marked) = if literal {
            (text, false)
        } else {
            (path, marked)
        };
        Some(if is_queue(path, held) {
            RawFile::Queue(path, stat)
        } else {
            RawFile::Path { path, marked, stat }
        })
    }

    /// Whether a file of this name, including the mark, exists in the target's own file tree.
    fn is_named(&self, text: &[u8], ino: u64) -> bool {
        let path = [b"../root", text].concat();
        rustix::fs::statat(&self.dir.fd, path, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| stat.st_ino == ino)
    }

    /// Whether fdinfo describes the file that is held. Some file systems (overlay, FUSE) show one
    /// inode number in fdinfo and another in stat: there fdguard's own fdinfo of the same file
    /// decides.
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

/// Whether this is a POSIX message queue: a regular file by its mode, on an internal mount of the
/// kernel, so that its path is the bare name.
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

/// Queries only the kernel's caches: a dead network file system must not block the probe.
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
