//! Builds one descriptor from its record: pure.

use std::io::Write as _;

use fdguard_core::detail::{Eventfd, Eventpoll, Timerfd};
use fdguard_core::{Class, Detail};
use fdguard_proc::fdinfo::{EpollTarget, Fdinfo};
use fdguard_proc::link::Link;

use super::super::classify::{ClassifiedEntry, FileStat, RawEntry, RawFile};
use super::super::fdinfo_detail;
use super::record::{PIPEFS, Record, SOCKFS, Tail, field};
use super::socket;
use crate::anonymous;

const EFD_SEMAPHORE: u32 = 1;

/// File systems whose inodes hold the same values as `statx`: no other layer answers for them, as
/// overlays and networks do.
const PLAIN: [u64; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683e, // btrfs
    0xf2f5_2010, // f2fs
    0x0102_1994, // tmpfs, devtmpfs, memory files
    0x8584_58f6, // ramfs
    0x9584_58f6, // hugetlbfs
    0x1cd1,      // devpts
    0x7371_7368, // squashfs
    0xe0f5_e1e2, // erofs
];

/// The descriptor as `/proc` and the tables of sockets would show it; `None` if `/proc` has more,
/// or may differ. `text` is a buffer.
pub(super) fn read_entry(record: &Record<'_>, text: &mut Vec<u8>) -> Option<ClassifiedEntry> {
    if !record.is_sure() {
        return None;
    }
    text.clear();
    // Writing to memory does not fail.
    let class = write_info(record, text).ok()?;
    let info = Fdinfo {
        rest: text,
        ..head(record)
    };
    let file = match class {
        // The additional lines of a socket's fdinfo are not used.
        None if record.magic == SOCKFS => return Some(socket_entry(record, &info)),
        _ if record.has_more() => return None,
        Some(class) => RawFile::Anonymous(class),
        None if record.magic == PIPEFS => RawFile::Pipe(record.ino),
        None => match described(record) {
            Some(file) => file,
            None => by_path(record, &info)?,
        },
    };
    let fd = record.fd;
    Some(
        RawEntry {
            fd,
            info: &info,
            file,
        }
        .classify(),
    )
}

/// The frequent kinds of anonymous inodes, without the detour through a text.
fn described(record: &Record<'_>) -> Option<RawFile<'static>> {
    let (class, detail, registered) = match record.tail {
        Tail::Eventfd { count, flags, id } => {
            let detail = Detail::Eventfd(Eventfd {
                count: Some(count),
                id: Some(u64::from(id)),
                semaphore: Some(flags & EFD_SEMAPHORE != 0),
            });
            (Class::Eventfd, detail, Vec::new())
        }
        Tail::Timerfd {
            remaining,
            interval,
            ticks,
            clock,
        } => {
            let detail = Detail::Timerfd(Box::new(Timerfd {
                clock: Some(fdinfo_detail::clock_name(u64::from(clock))),
                ticks: Some(ticks),
                remaining: Some(seconds(remaining)),
                interval: Some(seconds(interval)),
            }));
            (Class::Timerfd, detail, Vec::new())
        }
        Tail::Epoll(bytes) => {
            let registered = registered(bytes)?;
            let detail = Detail::Eventpoll(Box::new(Eventpoll {
                watching: registered.len() as u64,
                targets: registered.iter().map(|target| target.fd).collect(),
                ..Eventpoll::default()
            }));
            (Class::Eventpoll, detail, registered)
        }
        _ => return None,
    };
    Some(RawFile::Described(class, detail, registered))
}

/// What an epoll instance has registered; `None` if it is not whole.
fn registered(bytes: &[u8]) -> Option<Vec<EpollTarget>> {
    let count = usize::try_from(u32::from_ne_bytes(field(bytes, 0)?)).ok()?;
    let target = |index: usize| {
        let at = index.checked_mul(16)?.checked_add(8)?;
        Some(EpollTarget {
            fd: u32::from_ne_bytes(field(bytes, at)?),
            ino: Some(u64::from_ne_bytes(field(bytes, at + 8)?)),
            sdev: None,
        })
    };
    (0..count).map(target).collect()
}

#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
fn seconds(nanoseconds: u64) -> f64 {
    const SECOND: u64 = 1_000_000_000;
    (nanoseconds / SECOND) as f64 + (nanoseconds % SECOND) as f64 / 1e9
}

fn socket_entry(record: &Record<'_>, info: &Fdinfo<'_>) -> ClassifiedEntry {
    let entry = RawEntry {
        fd: record.fd,
        info,
        file: RawFile::Socket(record.ino),
    };
    match (entry.classify(), socket::describe(record)) {
        (ClassifiedEntry::Socket(socket), Some((known, ends))) => {
            let entry = socket.resolve(known);
            match ends {
                Some(ends) => ClassifiedEntry::Connection(entry, ends),
                None => ClassifiedEntry::Entry(entry),
            }
        }
        (entry, _) => entry,
    }
}

fn by_path<'a>(record: &Record<'a>, info: &Fdinfo<'_>) -> Option<RawFile<'a>> {
    let Tail::Path(text) = record.tail else {
        return None;
    };
    match Link::parse(text) {
        Link::Path { path, marked } => {
            // An existing file with the mark: it lost this one of its names, or its name ends like
            // that.
            let doubtful = marked && record.links > 0;
            (!doubtful && PLAIN.contains(&record.magic)).then(|| RawFile::Path {
                path,
                marked,
                stat: Some(stat(record)),
            })
        }
        Link::Anonymous(raw) => {
            let class = anonymous::class_of(raw);
            // For some of them, fdinfo always has additional lines.
            anonymous::agrees(&class, info).then_some(RawFile::Anonymous(class))
        }
        Link::Numbered { name, ino } if ino == record.ino => Some(RawFile::Other { name, text }),
        _ => None,
    }
}

/// The head of its fdinfo.
fn head(record: &Record<'_>) -> Fdinfo<'static> {
    Fdinfo {
        pos: u64::try_from(record.pos).ok(),
        flags: Some(u64::from(record.flags)),
        mnt: Some(u64::from(record.mnt)),
        ino: Some(record.ino),
        rest: b"",
    }
}

/// Writes the rest of its fdinfo, as far as it is used, and returns the class that this shows.
fn write_info(record: &Record<'_>, text: &mut Vec<u8>) -> std::io::Result<Option<Class>> {
    Ok(match record.tail {
        Tail::Signalfd(others) => {
            writeln!(text, "sigmask:\t{:016x}", !others)?;
            Some(Class::Signalfd)
        }
        Tail::Pidfd(pid) => {
            writeln!(text, "Pid:\t{pid}")?;
            Some(Class::Pidfd)
        }
        _ => {
            if let Some(index) = record.terminal {
                writeln!(text, "tty-index:\t{index}")?;
            }
            None
        }
    })
}

fn stat(record: &Record<'_>) -> FileStat {
    FileStat {
        mode: record.mode,
        links: record.links,
        ino: record.ino,
        mnt: u64::from(record.mnt),
        size: record.size,
        rdev: (record.rdev >> 20, record.rdev & 0xf_ffff),
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::{Class, FdEntry, Mode};

    use super::super::record::{HEAD, MARK_MORE, MARK_UNSURE, Record, at};
    use crate::linux::classify::ClassifiedEntry;
    use crate::linux::socket_entry;

    const EXT4: u64 = 0xef53;
    const OVERLAY: u64 = 0x794c_7630;

    /// A record of a regular file with one link at number 7, modified by the test.
    fn bytes(path: &[u8], magic: u64, links: u32, marks: u16) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        let mut put = |at: usize, field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
        };
        let length = u32::try_from(path.len() + HEAD).unwrap();
        put(at::LENGTH, &length.to_ne_bytes());
        put(at::FD, &7u32.to_ne_bytes());
        put(at::FLAGS, &0o2_000_001u32.to_ne_bytes());
        put(at::INO, &99u64.to_ne_bytes());
        put(at::MNT, &5u32.to_ne_bytes());
        put(at::MAGIC, &magic.to_ne_bytes());
        put(at::LINKS, &links.to_ne_bytes());
        put(at::MODE, &0o100_644u16.to_ne_bytes());
        put(at::MARKS, &marks.to_ne_bytes());
        put(at::KIND, &u32::from(!path.is_empty()).to_ne_bytes());
        bytes.extend(path);
        bytes
    }

    fn of(bytes: &[u8]) -> Option<FdEntry> {
        let (record, rest) = Record::take(bytes).unwrap();
        assert!(rest.is_empty());
        match super::read_entry(&record, &mut Vec::new())? {
            ClassifiedEntry::Entry(entry)
            | ClassifiedEntry::Epoll(entry, _)
            | ClassifiedEntry::Connection(entry, _) => Some(entry),
            ClassifiedEntry::Socket(socket) => {
                let known = socket_entry::by_protocol(socket.id.ino, None, true);
                Some(socket.resolve(known))
            }
        }
    }

    #[test]
    fn a_file_is_told_by_its_record() {
        let entry = of(&bytes(b"/a\0", EXT4, 1, 0)).unwrap();
        assert_eq!((entry.fd, &entry.class), (7, &Class::Regular));
        assert_eq!(entry.target.as_bytes(), b"/a");
        assert_eq!((entry.mode, entry.cloexec), (Some(Mode::Write), Some(true)));
        assert_eq!(entry.id.map(|id| (id.mnt, id.ino)), Some((5, 99)));
        let gone = of(&bytes(b"/a (deleted)\0", EXT4, 0, 0)).unwrap();
        assert_eq!((gone.class, gone.deleted), (Class::Deleted, true));
        assert_eq!(gone.target.as_bytes(), b"/a");
    }

    #[test]
    fn what_the_record_cannot_tell_is_left_to_proc() {
        for (path, magic, marks) in [
            (&b"/a\0"[..], EXT4, MARK_MORE),
            (b"/a\0", EXT4, MARK_UNSURE),
            (b"/a (deleted)\0", EXT4, 0),
            (b"/a\0", OVERLAY, 0),
            (b"", EXT4, 0),
            (b"anon_inode:[eventfd]\0", 0x0904_1934, 0),
            (b"net:[98]\0", 0x6e73_6673, 0),
        ] {
            let text = String::from_utf8_lossy(path);
            assert_eq!(of(&bytes(path, magic, 1, marks)), None, "{text} {marks}");
        }
    }

    #[test]
    fn what_fdinfo_adds_for_a_socket_is_not_waited_for() {
        let socket = super::SOCKFS;
        let entry = of(&bytes(b"", socket, 1, MARK_MORE)).unwrap();
        assert_eq!(entry.target.as_bytes(), b"socket:[99]");
        assert_eq!(of(&bytes(b"", socket, 1, MARK_UNSURE)), None);
        let pipe = of(&bytes(b"", super::PIPEFS, 1, 0)).unwrap();
        assert_eq!((pipe.class, pipe.cloexec), (Class::Pipe, Some(true)));
        let space = of(&bytes(b"net:[99]\0", 0x6e73_6673, 1, 0)).unwrap();
        assert_eq!(space.class, Class::Other("net".into()));
    }
}
