//! Builds one descriptor from the kernel's data: pure.

use fdguard_core::detail::{
    Eventpoll, FileDetail, Memfd, OtherDetail, Pidfd, PipeDetail, PipeEnd, PtyDetail, Signalfd,
    SocketDetail, WatcherDetail,
};
use fdguard_core::{Class, Detail, Fd, FdEntry, FileId, Mode, Text};

use fdguard_proc::fdinfo::{Fdinfo, PidfdTarget};

use super::fdinfo_detail;

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
        flags: fdinfo_detail::open_flags(info),
    }
}

/// A socket before the socket tables were queried.
pub(super) fn socket(fd: Fd, info: &Fdinfo<'_>, ino: u64) -> FdEntry {
    let target = Text::from(format!("socket:[{ino}]"));
    let mut entry = entry(
        fd,
        info,
        Class::Unix,
        target,
        Detail::Socket(SocketDetail::default()),
    );
    entry.id = Some(FileId {
        mnt: info.mnt.unwrap_or(0),
        ino,
    });
    entry
}

/// One end of an anonymous pipe.
pub(super) fn pipe(fd: Fd, info: &Fdinfo<'_>, ino: u64) -> FdEntry {
    let detail = Detail::Pipe(Box::new(PipeDetail {
        end: pipe_end(fdinfo_detail::mode(info)),
        peer: None,
        peer_more: 0,
        path: None,
    }));
    let mut entry = entry(
        fd,
        info,
        Class::Pipe,
        Text::from(format!("pipe:[{ino}]")),
        detail,
    );
    entry.id = Some(FileId {
        mnt: info.mnt.unwrap_or(0),
        ino,
    });
    entry
}

fn pipe_end(mode: Option<Mode>) -> Option<PipeEnd> {
    match mode? {
        Mode::Read => Some(PipeEnd::Read),
        Mode::Write => Some(PipeEnd::Write),
        Mode::ReadWrite => Some(PipeEnd::Both),
        Mode::Path => None,
    }
}

/// The class, if the first line after the common ones reveals it, so that the link need not be
/// read.
pub(super) fn anonymous_by_info(info: &Fdinfo<'_>) -> Option<Class> {
    let starts = |prefix: &[u8]| info.rest.starts_with(prefix);
    if starts(b"eventfd-count:") {
        Some(Class::Eventfd)
    } else if starts(b"tfd:") {
        Some(Class::Eventpoll)
    } else if starts(b"clockid:") {
        Some(Class::Timerfd)
    } else if starts(b"sigmask:") {
        Some(Class::Signalfd)
    } else if starts(b"Pid:") {
        Some(Class::Pidfd)
    } else if starts(b"inotify wd:") {
        Some(Class::Inotify)
    } else {
        None
    }
}

/// The class of an anonymous inode by its raw name.
pub(super) fn anonymous_class(name: &[u8]) -> Class {
    match name {
        b"[eventpoll]" => Class::Eventpoll,
        b"[eventfd]" => Class::Eventfd,
        b"[timerfd]" => Class::Timerfd,
        b"[signalfd]" => Class::Signalfd,
        b"inotify" => Class::Inotify,
        b"[fanotify]" => Class::Fanotify,
        b"[pidfd]" => Class::Pidfd,
        b"[io_uring]" => Class::IoUring,
        b"[perf_event]" => Class::PerfEvent,
        b"bpf-map" => Class::BpfMap,
        b"bpf-prog" => Class::BpfProg,
        b"bpf_link" | b"bpf-link" => Class::BpfLink,
        b"[userfaultfd]" => Class::Userfaultfd,
        raw => Class::Other(String::from_utf8_lossy(raw).into()),
    }
}

/// Whether fdinfo can belong to this class: a number that was reused between two reads shows here.
pub(super) fn agrees(class: &Class, info: &Fdinfo<'_>) -> bool {
    match class {
        Class::Eventfd | Class::Timerfd | Class::Signalfd | Class::Pidfd => {
            anonymous_by_info(info).as_ref() == Some(class)
        }
        Class::Eventpoll | Class::Inotify => {
            info.rest.is_empty() || anonymous_by_info(info).as_ref() == Some(class)
        }
        _ => anonymous_by_info(info).is_none(),
    }
}

/// A descriptor on an anonymous inode.
pub(super) fn anonymous(fd: Fd, info: &Fdinfo<'_>, class: Class) -> FdEntry {
    let mut target = match &class {
        Class::Other(raw) => Text::from(format!("anon_inode:{raw}")),
        known => Text::from(known.to_string()),
    };
    let detail = match &class {
        Class::Eventfd => Detail::Eventfd(fdinfo_detail::eventfd(info)),
        Class::Timerfd => Detail::Timerfd(Box::new(fdinfo_detail::timerfd(info))),
        Class::Signalfd => Detail::Signalfd(Signalfd {
            signals: info.signals(),
        }),
        Class::Inotify | Class::Fanotify => Detail::Watcher(WatcherDetail {
            watches: info.watches(),
            inodes: fdinfo_detail::watched(info),
        }),
        Class::IoUring => Detail::IoUring(fdinfo_detail::io_uring(info)),
        Class::Eventpoll => {
            let targets: Vec<Fd> = info.epoll_targets().map(|target| target.fd).collect();
            Detail::Eventpoll(Box::new(Eventpoll {
                watching: targets.len() as u64,
                // Filled in by the code that sees the whole table.
                ghosts: None,
                targets,
                ghost_fds: Vec::new(),
            }))
        }
        Class::Pidfd => {
            let pidfd = pidfd(info);
            target = Text::from(
                pidfd
                    .pid
                    .map_or_else(|| "pid ?".to_owned(), |pid| format!("pid {pid}")),
            );
            Detail::Pidfd(pidfd)
        }
        _ => Detail::Fields(fields(info)),
    };
    entry(fd, info, class, target, detail)
}

fn pidfd(info: &Fdinfo<'_>) -> Pidfd {
    match info.pidfd() {
        Some(PidfdTarget::Pid(pid)) => Pidfd {
            pid: Some(pid),
            alive: None,
            command: None,
        },
        Some(PidfdTarget::Gone) => Pidfd {
            pid: None,
            alive: Some(false),
            command: None,
        },
        Some(PidfdTarget::Foreign) | None => Pidfd::default(),
    }
}

fn fields(info: &Fdinfo<'_>) -> OtherDetail {
    let fields = info
        .fields()
        .map(|(key, value)| (String::from_utf8_lossy(key).into_owned(), Text::from(value)))
        .collect();
    OtherDetail { fields }
}

/// A descriptor without its own class, kept by its raw name: a `name:[inode]`, or the whole text.
pub(super) fn other(fd: Fd, info: &Fdinfo<'_>, name: &[u8], text: &[u8]) -> FdEntry {
    let class = Class::Other(String::from_utf8_lossy(name).into());
    entry(
        fd,
        info,
        class,
        Text::from(text),
        Detail::Fields(fields(info)),
    )
}

/// A POSIX message queue, by its name.
pub(super) fn queue(fd: Fd, info: &Fdinfo<'_>, name: &[u8], stat: Option<&FileStat>) -> FdEntry {
    let class = Class::Other("mqueue".into());
    let detail = Detail::Fields(fields(info));
    FdEntry {
        deleted: stat.is_some_and(|stat| stat.links == 0),
        ..entry(fd, info, class, Text::from(name), detail)
    }
}

/// A descriptor whose link is a path. `marked` is the kernel's deletion mark, already removed.
pub(super) fn path(
    fd: Fd,
    info: &Fdinfo<'_>,
    path: &[u8],
    marked: bool,
    stat: Option<&FileStat>,
) -> FdEntry {
    let deleted = match stat {
        Some(stat) => stat.links == 0,
        None => marked,
    };
    if marked
        && deleted
        && let Some(name) = path.strip_prefix(b"/memfd:")
    {
        let size = stat.map(|stat| stat.size);
        let detail = Detail::Memfd(Memfd {
            name: Text::from(name),
            size,
        });
        return entry(fd, info, Class::Memfd, Text::from(name), detail);
    }
    if marked && path == b"/secretmem" {
        let class = Class::Other("secretmem".into());
        return entry(
            fd,
            info,
            class,
            Text::from("secretmem"),
            Detail::Fields(fields(info)),
        );
    }
    let path = Text::from(path);
    let class = path_class(info, stat, deleted);
    let detail = path_detail(info, &class, &path, stat);
    let mut entry = entry(fd, info, class, path, detail);
    entry.deleted = deleted;
    entry
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
        Class::Fifo => Detail::Pipe(Box::new(PipeDetail {
            end: pipe_end(fdinfo_detail::mode(info)),
            peer: None,
            peer_more: 0,
            path: Some(path.clone()),
        })),
        Class::Other(_) => Detail::Fields(fields(info)),
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

    use super::{FileStat, agrees, anonymous_class, path};
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
        let renamed = path(3, &info, b"/tmp/foo", true, Some(&PLAIN));
        assert_eq!(renamed.class, Class::Regular);
        assert_eq!(renamed.target.as_bytes(), b"/tmp/foo");
        assert!(!renamed.deleted);
        let gone = path(
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
    fn a_reused_number_does_not_agree() {
        let timer = Fdinfo::parse(b"pos:\t0\nflags:\t02\nclockid: 1\n");
        assert!(agrees(&Class::Timerfd, &timer));
        assert!(!agrees(&Class::Eventfd, &timer));
        assert!(!agrees(&anonymous_class(b"[fscontext]"), &timer));
        let empty = Fdinfo::parse(b"pos:\t0\nflags:\t02\n");
        assert!(agrees(&Class::Eventpoll, &empty));
        assert!(!agrees(&Class::Eventfd, &empty));
    }

    #[test]
    fn memory_files_and_devices() {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02\nmnt_id:\t1\nino:\t9\ntty-index:\t4\n");
        let memory = path(
            3,
            &info,
            b"/memfd:hi",
            true,
            Some(&FileStat { links: 0, ..PLAIN }),
        );
        assert_eq!((memory.class, memory.deleted), (Class::Memfd, false));
        let device = |rdev| {
            path(
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
        let of = |info| path(3, info, b"/dev/null", false, Some(&null)).class;
        assert_eq!(of(&kept), Class::of_fdguard(), "what protection keeps");
        let plain = Fdinfo {
            flags: Some(0o12_000_000),
            ..Fdinfo::default()
        };
        assert_eq!(of(&plain), Class::Chardev);
    }
}
