//! Reads files without locks or side effects: read-only, and one piece in memory at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::Error;
use crate::foreign::Foreign;
use crate::holding::HolderRole;
use crate::sqlite::header::{self, DatabaseHeader};
use crate::sqlite::judge::{DatabaseImage, strange};
use crate::sqlite::wal::{self, Wal, WalHeader, WalScan};
use crate::sqlite::{Journal, Shm, encryption};

/// How much of a file's start is examined closely: the largest page.
const FIRST: u64 = 65_536;
/// Maximum number of strange pages reported.
const MOST_STRANGE: usize = 64;
/// Number of bytes examined at the start of a page.
const START: usize = 32;

/// Identity and state of a file: if equal, the file was not written in between, to the resolution
/// of the file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Device and inode.
    pub id: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// Last write, in seconds and nanoseconds.
    pub written: (i64, i64),
}

impl Stamp {
    /// Reads the stamp of an open file.
    pub fn read(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// The stamp of whatever is at a path.
    #[must_use]
    pub fn at(path: &Path) -> Option<Self> {
        path.metadata().ok().as_ref().map(Self::from)
    }
}

impl From<&std::fs::Metadata> for Stamp {
    fn from(meta: &std::fs::Metadata) -> Self {
        Self {
            id: (meta.dev(), meta.ino()),
            size: meta.size(),
            written: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

/// Opens a regular file for reading only. Nothing else is opened: a pipe would block, a device
/// would act.
pub fn open(path: &Path) -> Result<File, Error> {
    let meta = path
        .metadata()
        .map_err(|error| Error::io(path, "cannot read", error))?;
    if !meta.is_file() {
        let what = if meta.is_dir() {
            "a directory"
        } else {
            "not a regular file"
        };
        return Err(Error::NotAFile {
            path: path.to_owned(),
            what,
        });
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(|error| Error::io(path, "cannot open", error))?;
    Ok(file.into())
}

/// A side file, if there is one.
fn open_beside(database: &Path, role: HolderRole) -> Result<Option<(File, PathBuf)>, Error> {
    let path = role.path(database);
    match open(&path) {
        Ok(file) => Ok(Some((file, path))),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Everything needed to judge a database.
pub fn image(database: &Path, file: &File) -> Result<DatabaseImage, Error> {
    let failed = |error| Error::io(database, "cannot read", error);
    let size = file.metadata().map_err(failed)?.len();
    let first = piece(file, 0, size.min(FIRST)).map_err(failed)?;
    let mut image = DatabaseImage {
        size,
        first,
        ..DatabaseImage::default()
    };
    // The WAL index is read first: the WAL grows meanwhile and must have at least what the index
    // counts.
    if let Some((file, path)) = open_beside(database, HolderRole::Shm)? {
        let failed = |error| Error::io(&path, "cannot read", error);
        let size = file.metadata().map_err(failed)?.len();
        let bytes = piece(&file, 0, size.min(136)).map_err(failed)?;
        image.shm = Shm::read(&bytes, size);
    }
    read_log(database, &mut image)?;
    if let Some((file, path)) = open_beside(database, HolderRole::Journal)? {
        let failed = |error| Error::io(&path, "cannot read", error);
        let size = file.metadata().map_err(failed)?.len();
        let bytes = piece(&file, 0, size.min(28)).map_err(failed)?;
        image.journal = Some(Journal::read(&bytes, size));
    }
    let parts: io::Result<Vec<Vec<u8>>> = encryption::places(size)
        .into_iter()
        .map(|at| piece(file, at, encryption::PART))
        .collect();
    image.is_encrypted = encryption::is_encrypted(&image.first, size, &parts.map_err(failed)?);
    let page = page_size(&image).filter(|_| !image.is_encrypted);
    if let Some(page) = page {
        image.strange_pages = strange_pages(file, page, size).map_err(failed)?;
    }
    Ok(image)
}

/// Page size: from the header; if that is damaged, from the WAL, else the most common one.
fn page_size(image: &DatabaseImage) -> Option<u64> {
    let header = DatabaseHeader::read(&image.first)?;
    let told = header.page_size.filter(|_| header.magic).map(u64::from);
    let of_log = || Some(u64::from(image.wal.as_ref()?.header?.page_size));
    told.or_else(of_log)
        .or(image.size.is_multiple_of(4096).then_some(4096))
}

fn read_log(database: &Path, image: &mut DatabaseImage) -> Result<(), Error> {
    let Some((file, path)) = open_beside(database, HolderRole::Wal)? else {
        return Ok(());
    };
    let failed = |error| Error::io(&path, "cannot read", error);
    let size = file.metadata().map_err(failed)?.len();
    image.wal_first = piece(&file, 0, size.min(64)).map_err(failed)?;
    let Some(head) = WalHeader::read(&image.wal_first) else {
        image.wal = Some(Wal::unreadable(size));
        return Ok(());
    };
    let mut scan = WalScan::new(head, size);
    let mut frame = vec![0; head.frame_size()];
    let mut at = wal::HEAD as u64;
    while at + frame.len() as u64 <= size {
        match file.read_exact_at(&mut frame, at) {
            Ok(()) => scan.push_frame(&frame),
            // It was truncated meanwhile.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(failed(error)),
        }
        at += frame.len() as u64;
    }
    let (wal, page) = scan.finish();
    image.wal = Some(wal);
    image.wal_page = page;
    Ok(())
}

fn strange_pages(file: &File, page: u64, size: u64) -> io::Result<Vec<(u64, Foreign)>> {
    let pages = size / page;
    let mut found = Vec::new();
    let mut start = [0; START];
    for number in 1..pages {
        let at = number * page;
        match file.read_exact_at(&mut start, at) {
            Ok(()) => found.extend(strange(&start, at, pages).map(|foreign| (at, foreign))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
        if found.len() >= MOST_STRANGE {
            break;
        }
    }
    Ok(found)
}

/// This many bytes from an offset; fewer at the end of the file.
pub fn piece(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Whether these bytes begin with the magic of a database.
#[must_use]
pub fn has_magic(first: &[u8]) -> bool {
    first.starts_with(header::MAGIC)
}
