//! Small snapshots for tests: whatever a test does not specify is unsuspicious.

pub(crate) mod trace_script;
pub(crate) mod watch_script;

use jiff::Timestamp;

use crate::detail::{
    Eventfd, Eventpoll, FileDetail, FileLock, InetDetail, IoUring, Memfd, OtherDetail, Pidfd,
    PipeDetail, PipeEnd, PtyDetail, Signalfd, UnixDetail, WatcherDetail,
};
use crate::snapshot::{Ceilings, Limits, Process, Via};
use crate::{
    Class, Detail, Fd, FdEntry, FdHolder, FileId, Mode, Pid, Snapshot, TcpState, Text, Tier,
};

/// The process of every test snapshot.
pub(crate) const PID: Pid = 4242;

/// A full snapshot of these descriptors and nothing else: not even stdio.
pub(crate) fn snapshot(mut fds: Vec<FdEntry>) -> Snapshot {
    fds.sort_by_key(|entry| entry.fd);
    Snapshot {
        taken_at: Timestamp::UNIX_EPOCH,
        tier: Tier::Full,
        via: Via::Proc,
        process: Process {
            pid: PID,
            start_ticks: Some(100),
            comm: "victim".into(),
            ..Process::default()
        },
        limits: Limits {
            soft: Some(65_536),
            hard: Some(65_536),
        },
        count: Some(fds.len() as u64),
        table_size: None,
        host: Ceilings::default(),
        fds: Some(fds),
        gaps: Vec::new(),
    }
}

/// The radar's view: a count, no descriptors.
pub(crate) fn radar(count: u64) -> Snapshot {
    Snapshot {
        tier: Tier::Radar,
        count: Some(count),
        fds: None,
        ..snapshot(Vec::new())
    }
}

/// A descriptor of a class with that class's empty detail. It closes at exec and has its own inode,
/// as well-behaved ones do.
pub(crate) fn entry(fd: Fd, class: Class) -> FdEntry {
    FdEntry {
        fd,
        target: Text::from(class.to_string()),
        mode: Some(Mode::ReadWrite),
        cloexec: Some(true),
        deleted: false,
        detail: empty_detail(&class),
        id: Some(FileId {
            mnt: 30,
            ino: 1000 + u64::from(fd),
        }),
        shared_with: Vec::new(),
        shared_more: 0,
        open_file: None,
        flags: None,
        class,
    }
}

fn empty_detail(class: &Class) -> Detail {
    match class {
        Class::PtyMaster => Detail::Pty(Box::default()),
        Class::Pipe | Class::Fifo => Detail::Pipe(Box::new(PipeDetail {
            end: None,
            peer: None,
            peer_more: 0,
            path: None,
        })),
        Class::Tcp(_) | Class::Udp | Class::Raw => Detail::Inet(Box::default()),
        Class::Unix => Detail::Unix(Box::default()),
        Class::Netlink | Class::Packet | Class::Vsock => Detail::Socket(Box::default()),
        Class::Eventpoll => Detail::Eventpoll(Box::default()),
        Class::Eventfd => Detail::Eventfd(Eventfd::default()),
        Class::Timerfd => Detail::Timerfd(Box::default()),
        Class::Signalfd => Detail::Signalfd(Signalfd::default()),
        Class::Inotify | Class::Fanotify => Detail::Watcher(WatcherDetail::default()),
        Class::Pidfd => Detail::Pidfd(Pidfd::default()),
        Class::Memfd => Detail::Memfd(Memfd::default()),
        Class::IoUring => Detail::IoUring(IoUring::default()),
        other if other.family() == Class::Regular || is_named(other) => {
            Detail::File(Box::new(FileDetail {
                pos: Some(0),
                ..FileDetail::default()
            }))
        }
        _ => Detail::Fields(OtherDetail::default()),
    }
}

fn is_named(class: &Class) -> bool {
    matches!(
        class,
        Class::Directory | Class::Chardev | Class::Blockdev | Class::Tty
    )
}

/// A file with a path. Descriptors of one path have one identity.
pub(crate) fn file(fd: Fd, class: Class, path: &str) -> FdEntry {
    let ino = path.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    FdEntry {
        target: path.into(),
        detail: Detail::File(Box::new(FileDetail {
            path: path.into(),
            pos: Some(0),
            ..FileDetail::default()
        })),
        id: Some(FileId { mnt: 30, ino }),
        ..entry(fd, class)
    }
}

/// One end of a pipe; `peer` as in [`PipeDetail::peer`].
pub(crate) fn pipe(fd: Fd, end: PipeEnd, peer: Option<Vec<FdHolder>>) -> FdEntry {
    FdEntry {
        detail: Detail::Pipe(Box::new(PipeDetail {
            end: Some(end),
            peer,
            peer_more: 0,
            path: None,
        })),
        ..entry(fd, Class::Pipe)
    }
}

/// A TCP socket, connected when there is a remote address.
pub(crate) fn tcp(fd: Fd, state: TcpState, remote: Option<&str>) -> FdEntry {
    FdEntry {
        detail: Detail::Inet(Box::new(InetDetail {
            local: Some("127.0.0.1:8080".to_owned()),
            remote: remote.map(str::to_owned),
            state: Some(state.name().into()),
            ..InetDetail::default()
        })),
        ..entry(fd, Class::Tcp(state))
    }
}

/// A unix-domain socket that accepts connections.
pub(crate) fn unix_listener(fd: Fd, path: &str) -> FdEntry {
    FdEntry {
        target: path.into(),
        detail: Detail::Unix(Box::new(UnixDetail {
            path: Some(path.into()),
            state: Some("listening".into()),
            ..UnixDetail::default()
        })),
        ..entry(fd, Class::Unix)
    }
}

/// A handle of a process.
pub(crate) fn pidfd(fd: Fd, alive: Option<bool>, command: Option<&str>) -> FdEntry {
    FdEntry {
        detail: Detail::Pidfd(Pidfd {
            pid: None,
            alive,
            command: command.map(Text::from),
        }),
        ..entry(fd, Class::Pidfd)
    }
}

/// An epoll instance with these ghosts.
pub(crate) fn epoll(fd: Fd, watching: u64, ghosts: &[Fd]) -> FdEntry {
    FdEntry {
        detail: Detail::Eventpoll(Box::new(Eventpoll {
            watching,
            ghosts: Some(ghosts.len() as u64),
            targets: ghosts.to_vec(),
            ghost_fds: ghosts.to_vec(),
        })),
        ..entry(fd, Class::Eventpoll)
    }
}

/// The master side of a pseudo-terminal.
pub(crate) fn pty(fd: Fd, index: u32) -> FdEntry {
    FdEntry {
        detail: Detail::Pty(Box::new(PtyDetail {
            index: Some(index),
            path: "/dev/ptmx".into(),
            ..PtyDetail::default()
        })),
        ..entry(fd, Class::PtyMaster)
    }
}

/// Stdio as a daemon has it: all three on `/dev/null`.
pub(crate) fn stdio() -> Vec<FdEntry> {
    (0..=2)
        .map(|fd| file(fd, Class::Chardev, "/dev/null").cloexec(Some(false)))
        .collect()
}

/// Another holder.
pub(crate) fn holder(pid: Pid, fd: Fd) -> FdHolder {
    FdHolder {
        pid,
        fd,
        writes: None,
    }
}

impl FdEntry {
    pub(crate) fn cloexec(self, cloexec: Option<bool>) -> Self {
        Self { cloexec, ..self }
    }

    pub(crate) fn mode(self, mode: Option<Mode>) -> Self {
        Self { mode, ..self }
    }

    pub(crate) fn deleted(self) -> Self {
        Self {
            deleted: true,
            ..self
        }
    }

    pub(crate) fn shared_with(self, holders: &[FdHolder]) -> Self {
        Self {
            shared_with: holders.to_vec(),
            ..self
        }
    }

    pub(crate) fn at(mut self, pos: Option<u64>) -> Self {
        if let Detail::File(file) = &mut self.detail {
            file.pos = pos;
        }
        self
    }

    /// Adds a lock of this kind over SQLite's shared range.
    pub(crate) fn locked(mut self, kind: &str) -> Self {
        if let Detail::File(file) = &mut self.detail {
            file.locks.push(FileLock {
                kind: kind.to_owned(),
                access: "READ".to_owned(),
                start: 1_073_741_826,
                end: Some(1_073_742_335),
            });
        }
        self
    }
}
