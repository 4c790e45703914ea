//! The record that the kernel program writes for each descriptor: pure.

use fdguard_core::{Fd, Pid};

/// The magic of the file systems of sockets and pipes.
pub(super) const SOCKFS: u64 = 0x534f_434b;
pub(super) const PIPEFS: u64 = 0x5049_5045;

/// From this kind on, a record is not about a descriptor.
const PROCESS: u32 = 10;

/// Bytes before what depends on the kind.
pub(super) const HEAD: usize = 96;

/// fdinfo has more about this one than the record.
pub(super) const MARK_MORE: u16 = 1;
/// The number was reused while the record was made, the path is too long for it, or something could
/// not be read.
pub(super) const MARK_UNSURE: u16 = 2;
/// Something beside this number refers to the open file.
const MARK_SHARED: u16 = 4;

/// Offset of each field in the record, as in `descriptors.bpf.c`.
pub(super) mod at {
    pub(crate) const LENGTH: usize = 0;
    pub(crate) const PID: usize = 4;
    pub(crate) const STARTED: usize = 8;
    pub(crate) const FD: usize = 16;
    pub(crate) const FLAGS: usize = 20;
    pub(crate) const POS: usize = 24;
    pub(crate) const INO: usize = 32;
    pub(crate) const MAGIC: usize = 40;
    pub(crate) const SIZE: usize = 48;
    pub(crate) const MNT: usize = 56;
    pub(crate) const LINKS: usize = 60;
    pub(crate) const RDEV: usize = 64;
    pub(crate) const MODE: usize = 68;
    pub(crate) const MARKS: usize = 70;
    pub(crate) const FILE: usize = 72;
    pub(crate) const KIND: usize = 80;
    pub(crate) const NETNS: usize = 84;
    pub(crate) const TERMINAL: usize = 88;
}

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail<'a> {
    /// Nothing is known beyond the head, or nothing is needed.
    None,
    /// The path as the link would show it.
    Path(&'a [u8]),
    /// Its counter, its flags and the number that the kernel gave it.
    Eventfd {
        count: u64,
        flags: u32,
        id: u32,
    },
    /// Times in nanoseconds.
    Timerfd {
        remaining: u64,
        interval: u64,
        ticks: u64,
        clock: u32,
    },
    /// The signals that it does not read.
    Signalfd(u64),
    /// The pid, 0 outside the reader's namespace, -1 for one that is gone.
    Pidfd(i32),
    /// Sockets; `super::socket` reads their bytes.
    Inet(&'a [u8]),
    Unix(&'a [u8]),
    Netlink(&'a [u8]),
    /// What an epoll instance has registered.
    Epoll(&'a [u8]),
    /// No descriptor, but a process: its descriptors follow. `super::process` reads the bytes.
    Process(&'a [u8]),
    /// The process is still alive after the last of its descriptors.
    Complete,
}

/// One descriptor, as the kernel saw it at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) pid: Pid,
    /// When its process started, in nanoseconds since boot.
    pub(super) started: u64,
    pub(super) fd: Fd,
    /// Open flags as fdinfo shows them, close-on-exec included.
    pub(super) flags: u32,
    pub(super) pos: i64,
    pub(super) ino: u64,
    /// The magic of the file system.
    pub(super) magic: u64,
    pub(super) size: u64,
    pub(super) mnt: u32,
    pub(super) links: u32,
    /// As the kernel packs it: twelve bits of major number, twenty of minor.
    pub(super) rdev: u32,
    pub(super) mode: u16,
    marks: u16,
    /// The open file: the same for descriptors that share it.
    pub(super) file: u64,
    /// The inode of a socket's network namespace.
    pub(super) netns: u32,
    /// For the master of a pseudo-terminal: its number.
    pub(super) terminal: Option<u32>,
    pub(super) tail: Tail<'a>,
}

impl<'a> Record<'a> {
    /// The bytes after the first record; `None` if it is not whole.
    pub(super) fn skip(bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::try_from(u32::from_ne_bytes(field(bytes, at::LENGTH)?)).ok()?;
        bytes.get(length..).filter(|_| length >= HEAD)
    }

    /// Process and kind of the first record, and the bytes after it; `None` if it is not whole.
    pub(super) fn peek(bytes: &'a [u8]) -> Option<(Pid, bool, &'a [u8])> {
        let rest = Self::skip(bytes)?;
        let kind = u32::from_ne_bytes(field(bytes, at::KIND)?);
        let pid = u32::from_ne_bytes(field(bytes, at::PID)?);
        Some((pid, kind < PROCESS, rest))
    }

    /// The first record, and the bytes after it; `None` at the end, and for anything that is not a
    /// record.
    pub(super) fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let rest = Self::skip(bytes)?;
        let (head, tail) = bytes
            .get(..bytes.len() - rest.len())?
            .split_first_chunk::<HEAD>()?;
        let marks = u16::from_ne_bytes(field(head, at::MARKS)?);
        let kind = u32::from_ne_bytes(field(head, at::KIND)?);
        let tail = Tail::read(kind, tail);
        let record = Self {
            pid: u32::from_ne_bytes(field(head, at::PID)?),
            started: u64::from_ne_bytes(field(head, at::STARTED)?),
            fd: u32::from_ne_bytes(field(head, at::FD)?),
            flags: u32::from_ne_bytes(field(head, at::FLAGS)?),
            pos: i64::from_ne_bytes(field(head, at::POS)?),
            ino: u64::from_ne_bytes(field(head, at::INO)?),
            magic: u64::from_ne_bytes(field(head, at::MAGIC)?),
            size: u64::from_ne_bytes(field(head, at::SIZE)?),
            mnt: u32::from_ne_bytes(field(head, at::MNT)?),
            links: u32::from_ne_bytes(field(head, at::LINKS)?),
            rdev: u32::from_ne_bytes(field(head, at::RDEV)?),
            mode: u16::from_ne_bytes(field(head, at::MODE)?),
            marks: if tail.is_some() { marks } else { MARK_UNSURE },
            file: u64::from_ne_bytes(field(head, at::FILE)?),
            netns: u32::from_ne_bytes(field(head, at::NETNS)?),
            terminal: u32::from_ne_bytes(field(head, at::TERMINAL)?).checked_sub(1),
            tail: tail.unwrap_or(Tail::None),
        };
        Some((record, rest))
    }

    /// Whether fdinfo has something that the record lacks.
    pub(super) fn has_more(&self) -> bool {
        self.marks & MARK_MORE != 0
    }

    /// Whether it is consistent and complete.
    pub(super) fn is_sure(&self) -> bool {
        self.marks & MARK_UNSURE == 0
    }

    /// Whether something beside this number refers to the open file, for a moment at least.
    pub(super) fn is_shared(&self) -> bool {
        self.marks & MARK_SHARED != 0
    }

    /// Whether its inode alone identifies it.
    pub(super) fn is_socket_or_pipe(&self) -> bool {
        matches!(self.magic, SOCKFS | PIPEFS)
    }

    /// When its process started, in the ticks of `/proc/PID/stat`.
    pub(super) fn start_ticks(&self) -> u64 {
        self.started / 10_000_000
    }
}

impl<'a> Tail<'a> {
    /// `None` if it is shorter than its kind.
    fn read(kind: u32, bytes: &'a [u8]) -> Option<Self> {
        let word = |at: usize| field(bytes, at).map(u32::from_ne_bytes);
        let long = |at: usize| field(bytes, at).map(u64::from_ne_bytes);
        Some(match kind {
            1 => Self::Path(bytes.strip_suffix(b"\0").unwrap_or(bytes)),
            2 => Self::Eventfd {
                count: long(0)?,
                flags: word(8)?,
                id: word(12)?,
            },
            3 => Self::Timerfd {
                remaining: long(0)?,
                interval: long(8)?,
                ticks: long(16)?,
                clock: word(24)?,
            },
            4 => Self::Signalfd(long(0)?),
            5 => Self::Pidfd(word(0)?.cast_signed()),
            6 => Self::Inet(bytes),
            7 => Self::Unix(bytes),
            8 => Self::Netlink(bytes),
            9 => Self::Epoll(bytes),
            PROCESS => Self::Process(bytes),
            11 => Self::Complete,
            _ => Self::None,
        })
    }
}

pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEAD, Record, Tail, at};

    #[test]
    fn records_follow_each_other() {
        let mut bytes = vec![0; 2 * HEAD];
        bytes.extend(b"/a\0");
        let mut put = |at: usize, word: u32| {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        };
        put(0, 96);
        put(HEAD, 99);
        put(HEAD + at::STARTED, 29_999_999);
        put(HEAD + at::KIND, 1);
        put(HEAD + at::TERMINAL, 4);
        let (first, rest) = Record::take(&bytes).unwrap();
        assert_eq!((first.tail, first.is_sure()), (Tail::None, true));
        assert_eq!(first.terminal, None);
        let (second, rest) = Record::take(rest).unwrap();
        assert_eq!(second.tail, Tail::Path(b"/a"));
        assert_eq!((second.start_ticks(), second.terminal), (2, Some(3)));
        assert!(!second.has_more());
        assert!(rest.is_empty());
        assert_eq!(Record::take(rest), None);
    }

    #[test]
    fn a_tail_that_is_too_short_is_not_believed() {
        let mut bytes = vec![0; HEAD + 8];
        bytes[..4].copy_from_slice(&104_u32.to_ne_bytes());
        bytes[at::KIND] = if cfg!(target_endian = "little") { 3 } else { 0 };
        let (record, _) = Record::take(&bytes).unwrap();
        assert_eq!((record.tail, record.is_sure()), (Tail::None, false));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let mut rest = &bytes[..];
            while let Some((_, tail)) = Record::take(rest) {
                prop_assert!(tail.len() < rest.len());
                rest = tail;
            }
        }
    }
}
