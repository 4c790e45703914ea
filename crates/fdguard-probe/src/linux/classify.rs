//! Classifies one descriptor: what the kernel showed becomes class, target and detail. Pure.

use fdguard_core::detail::{FileDetail, Memfd, PipeDetail, PipeEnd, PtyDetail};
use fdguard_core::{Class, Detail, Fd, FdEntry, FileId, Mode, OpenFlags, Text};
use fdguard_proc::fdinfo::{EpollTarget, Fdinfo};
use smallvec::SmallVec;

use super::fdinfo_detail;
use super::socket::ConnectionEnds;
use super::socket_entry::SocketDescription;
use crate::anonymous;

/// `statx` of the file behind a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) mode: u16,
    pub(super) links: u32,
    pub(super) ino: u64,
    /// Mount id; 0 on kernels that do not provide it (before Linux 5.8).
    pub(super) mnt: u64,
    pub(super) size: u64,
    pub(super) rdev: (u32, u32),
}

/// `/dev/null`.
const NULL_DEVICE: (u32, u32) = (1, 3);
const S_IFMT: u16 = 0o170_000;
const S_IFREG: u16 = 0o100_000;
const S_IFDIR: u16 = 0o040_000;
const S_IFCHR: u16 = 0o020_000;
const S_IFBLK: u16 = 0o060_000;
const S_IFIFO: u16 = 0o010_000;
const S_IFLNK: u16 = 0o120_000;

/// One descriptor as the kernel showed it at one moment: all of it belongs to one file. It borrows
/// from the buffers of a reader, or from a record of the kernel walk.
pub(super) struct RawEntry<'a> {
    pub(super) fd: Fd,
    pub(super) info: &'a Fdinfo<'a>,
    pub(super) file: RawFile<'a>,
}

/// The file behind a number, by its link or its mount.
pub(super) enum RawFile<'a> {
    Socket(u64),
    Pipe(u64),
    /// An anonymous inode, whose class its name or its fdinfo gave.
    Anonymous(Class),
    /// One that the kernel described itself; what an epoll instance has registered.
    Described(Class, Detail, Vec<EpollTarget>),
    /// A POSIX message queue, by its name.
    Queue(&'a [u8], Option<FileStat>),
    /// Without its own class, kept by its raw name: a `name:[inode]`, or the whole text.
    Other {
        name: &'a [u8],
        text: &'a [u8],
    },
    /// `marked` is the kernel's deletion mark, already removed from the path.
    Path {
        path: &'a [u8],
        marked: bool,
        stat: Option<FileStat>,
    },
}

/// A descriptor as the files of its own process describe it.
#[derive(Debug)]
pub(super) enum ClassifiedEntry {
    Entry(FdEntry),
    /// With what it has registered: which of it is stale only the whole table shows.
    Epoll(FdEntry, Vec<EpollTarget>),
    Socket(UnresolvedSocket),
    /// A connection within this host: the other end only the rest of the host can give.
    Connection(FdEntry, ConnectionEnds),
}

/// A socket by its inode. Its class, and thus an entry, only its network namespace can give.
#[derive(Clone, Debug)]
pub(super) struct UnresolvedSocket {
    pub(super) fd: Fd,
    pub(super) id: FileId,
    mode: Option<Mode>,
    cloexec: Option<bool>,
    flags: Option<OpenFlags>,
}

impl RawEntry<'_> {
    /// Class, target and detail.
    pub(super) fn classify(self) -> ClassifiedEntry {
        let Self { fd, info, file } = self;
        let entry = |class, target, detail| entry(fd, info, class, target, detail);
        let known = |ino| FileId {
            mnt: info.mnt.unwrap_or(0),
            ino,
        };
        ClassifiedEntry::Entry(match file {
            RawFile::Socket(ino) => {
                return ClassifiedEntry::Socket(UnresolvedSocket {
                    fd,
                    id: known(ino),
                    mode: fdinfo_detail::mode(info),
                    cloexec: info.cloexec(),
                    flags: fdinfo_detail::open_flags(info),
                });
            }
            RawFile::Anonymous(class) => {
                let detail = anonymous::detail(&class, info);
                let registered = info.epoll_targets().collect();
                return anonymous_entry(class, detail, registered, entry);
            }
            RawFile::Described(class, detail, registered) => {
                return anonymous_entry(class, detail, registered, entry);
            }
            RawFile::Pipe(ino) => FdEntry {
                id: Some(known(ino)),
                ..entry(Class::Pipe, numbered_text("pipe", ino), pipe(info, None))
            },
            RawFile::Queue(name, stat) => FdEntry {
                deleted: stat.is_some_and(|stat| stat.links == 0),
                ..entry(
                    Class::Other("mqueue".into()),
                    Text::from(name),
                    anonymous::fields(info),
                )
            },
            RawFile::Other { name, text } => {
                let class = Class::Other(String::from_utf8_lossy(name).into());
                entry(class, Text::from(text), anonymous::fields(info))
            }
            RawFile::Path { path, marked, stat } => by_path(fd, info, path, marked, stat.as_ref()),
        })
    }
}

impl UnresolvedSocket {
    /// A socket whose class must be determined again.
    pub(super) fn of_entry(entry: &FdEntry) -> Option<Self> {
        Some(Self {
            fd: entry.fd,
            id: entry.id?,
            mode: entry.mode,
            cloexec: entry.cloexec,
            flags: entry.flags,
        })
    }

    /// The entry, once its class is known.
    pub(super) fn resolve(self, known: SocketDescription) -> FdEntry {
        FdEntry {
            fd: self.fd,
            class: known.class,
            target: known.target,
            mode: self.mode,
            cloexec: self.cloexec,
            deleted: false,
            detail: known.detail,
            id: Some(self.id),
            shared_with: Vec::new(),
            shared_more: 0,
            open_file: None,
            flags: self.flags,
        }
    }
}

fn entry(fd: Fd, info: &Fdinfo<'_>, class: Class, target: Text, detail: Detail) -> FdEntry {
    FdEntry {
        fd,
        class,
        target,
        mode: fdinfo_detail::mode(info),
        cloexec: info.cloexec(),
        deleted: false,
        detail,
        id: info.mnt.zip(info.ino).map(|(mnt, ino)| FileId { mnt, ino }),
        shared_with: Vec::new(),
        shared_more: 0,
        open_file: None,
        flags: fdinfo_detail::open_flags(info),
    }
}

fn anonymous_entry(
    class: Class,
    detail: Detail,
    registered: Vec<EpollTarget>,
    entry: impl FnOnce(Class, Text, Detail) -> FdEntry,
) -> ClassifiedEntry {
    let is_epoll = class == Class::Eventpoll;
    let target = anonymous::target(&class, &detail);
    let entry = entry(class, target, detail);
    if is_epoll {
        ClassifiedEntry::Epoll(entry, registered)
    } else {
        ClassifiedEntry::Entry(entry)
    }
}

/// The text of a link that is not a path: `pipe:[42]`.
pub(super) fn numbered_text(name: &str, number: u64) -> Text {
    let mut digits = itoa::Buffer::new();
    let parts = [name, ":[", digits.format(number), "]"];
    let mut text = SmallVec::<[u8; 64]>::new();
    for part in parts {
        text.extend_from_slice(part.as_bytes());
    }
    Text::from(&*text)
}

/// One end of a pipe.
fn pipe(info: &Fdinfo<'_>, path: Option<Text>) -> Detail {
    let end = fdinfo_detail::mode(info).and_then(|mode| match mode {
        Mode::Read => Some(PipeEnd::Read),
        Mode::Write => Some(PipeEnd::Write),
        Mode::ReadWrite => Some(PipeEnd::Both),
        Mode::Path => None,
    });
    Detail::Pipe(Box::new(PipeDetail {
        end,
        peer: None,
        peer_more: 0,
        path,
    }))
}

/// A descriptor whose link is a path.
fn by_path(
    fd: Fd,
    info: &Fdinfo<'_>,
    path: &[u8],
    marked: bool,
    stat: Option<&FileStat>,
) -> FdEntry {
    let deleted = stat.map_or(marked, |stat| stat.links == 0);
    if marked
        && deleted
        && let Some(name) = path.strip_prefix(b"/memfd:")
    {
        let name = Text::from(name);
        let detail = Detail::Memfd(Memfd {
            name: name.clone(),
            size: stat.map(|stat| stat.size),
        });
        return entry(fd, info, Class::Memfd, name, detail);
    }
    if marked && path == b"/secretmem" {
        let class = Class::Other("secretmem".into());
        let detail = anonymous::fields(info);
        return entry(fd, info, class, Text::from("secretmem"), detail);
    }
    let path = Text::from(path);
    let class = path_class(info, stat, deleted);
    let detail = path_detail(info, &class, &path, stat);
    FdEntry {
        deleted,
        ..entry(fd, info, class, path, detail)
    }
}

fn path_class(info: &Fdinfo<'_>, stat: Option<&FileStat>, deleted: bool) -> Class {
    let Some(stat) = stat else {
        return if info.tty_index().is_some() {
            Class::PtyMaster
        } else {
            Class::Regular
        };
    };
    match stat.mode & S_IFMT {
        S_IFDIR => Class::Directory,
        S_IFBLK => Class::Blockdev,
        S_IFIFO => Class::Fifo,
        S_IFCHR => match stat.rdev {
            (5, 2) | (128..=135, _) => Class::PtyMaster,
            // consoles, serial lines, the controlling terminal, pseudo-terminal slaves
            (4 | 5 | 136..=143 | 166 | 188 | 204 | 229, _) => Class::Tty,
            NULL_DEVICE if info.is_kept() => Class::of_fdguard(),
            _ => Class::Chardev,
        },
        S_IFREG if deleted => Class::Deleted,
        S_IFREG => Class::Regular,
        S_IFLNK => Class::Other("symlink".into()),
        _ => Class::Other("file".into()),
    }
}

fn path_detail(info: &Fdinfo<'_>, class: &Class, path: &Text, stat: Option<&FileStat>) -> Detail {
    match class {
        Class::PtyMaster => Detail::Pty(Box::new(PtyDetail {
            index: info.tty_index(),
            path: path.clone(),
            ..PtyDetail::default()
        })),
        Class::Fifo => pipe(info, Some(path.clone())),
        Class::Other(_) => anonymous::fields(info),
        _ => {
            let device = matches!(class, Class::Chardev | Class::Blockdev | Class::Tty);
            Detail::File(Box::new(FileDetail {
                path: path.clone(),
                pos: info.pos,
                size: stat
                    .filter(|stat| stat.mode & S_IFMT == S_IFREG)
                    .map(|stat| stat.size),
                links: stat.map(|stat| stat.links),
                locks: fdinfo_detail::locks(info),
                device: stat
                    .filter(|_| device)
                    .map(|stat| format!("{}:{}", stat.rdev.0, stat.rdev.1)),
                interface: info.interface(),
                ..FileDetail::default()
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use fdguard_core::Class;

    use super::{FileStat, by_path};
    use fdguard_proc::fdinfo::Fdinfo;

    const PLAIN: FileStat = FileStat {
        mode: 0o100_644,
        links: 1,
        ino: 9,
        mnt: 1,
        size: 3,
        rdev: (0, 0),
    };

    #[test]
    fn deleted_is_told_by_the_link_count_not_by_the_text() {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t9\n");
        let renamed = by_path(3, &info, b"/tmp/foo", true, Some(&PLAIN));
        assert_eq!(renamed.class, Class::Regular);
        assert_eq!(renamed.target.as_bytes(), b"/tmp/foo");
        assert!(!renamed.deleted);
        let gone = by_path(
            3,
            &info,
            b"/tmp/foo",
            true,
            Some(&FileStat { links: 0, ..PLAIN }),
        );
        assert_eq!(
            (gone.class, gone.target.as_bytes()),
            (Class::Deleted, &b"/tmp/foo"[..])
        );
        assert!(gone.deleted);
    }

    #[test]
    fn memory_files_and_devices() {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t9\ntty-index:\t4\n");
        let memory = by_path(
            3,
            &info,
            b"/memfd:hi",
            true,
            Some(&FileStat { links: 0, ..PLAIN }),
        );
        assert_eq!((memory.class, memory.deleted), (Class::Memfd, false));
        let device = |rdev| {
            by_path(
                3,
                &info,
                b"/dev/x",
                false,
                Some(&FileStat {
                    mode: 0o020_600,
                    rdev,
                    ..PLAIN
                }),
            )
            .class
        };
        assert_eq!(device((5, 2)), Class::PtyMaster);
        assert_eq!(device((136, 0)), Class::Tty);
        assert_eq!(device((1, 3)), Class::Chardev);
        let kept = Fdinfo {
            flags: Some(0o12_400_000),
            ..Fdinfo::default()
        };
        let null = FileStat {
            mode: 0o020_600,
            rdev: (1, 3),
            ..PLAIN
        };
        let of = |info| by_path(3, info, b"/dev/null", false, Some(&null)).class;
        assert_eq!(of(&kept), Class::of_fdguard(), "what protection keeps");
        let plain = Fdinfo {
            flags: Some(0o12_000_000),
            ..Fdinfo::default()
        };
        assert_eq!(of(&plain), Class::Chardev);
    }
}
