//! The record that the kernel program writes for each descriptor: pure.

use fdguard_core::{Fd, Pid};

/// Bytes before the path.
pub(super) const HEAD: i16 = 72;
/// Space for the path with its terminating zero; a longer one is marked.
pub(super) const PATH: i16 = 384;

/// fdinfo has more about this one than the record.
pub(super) const MARK_MORE: i32 = 1;
/// The number was reused while the record was made, the path is too long for it, or something could
/// not be read.
pub(super) const MARK_UNSURE: i32 = 2;

/// Offset of each field in the record.
pub(super) mod at {
    pub(crate) const LENGTH: i16 = 0;
    pub(crate) const PID: i16 = 4;
    pub(crate) const STARTED: i16 = 8;
    pub(crate) const FD: i16 = 16;
    pub(crate) const FLAGS: i16 = 20;
    pub(crate) const POS: i16 = 24;
    pub(crate) const INO: i16 = 32;
    pub(crate) const MAGIC: i16 = 40;
    pub(crate) const SIZE: i16 = 48;
    pub(crate) const MNT: i16 = 56;
    pub(crate) const LINKS: i16 = 60;
    pub(crate) const RDEV: i16 = 64;
    pub(crate) const MODE: i16 = 68;
    pub(crate) const MARKS: i16 = 70;
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
    /// As the link would show it; empty for sockets, pipes, and where fdinfo must be read anyway.
    pub(super) path: &'a [u8],
}

impl<'a> Record<'a> {
    /// The bytes after the first record; `None` if it is not whole.
    pub(super) fn skip(bytes: &'a [u8]) -> Option<&'a [u8]> {
        let length = usize::try_from(u32::from_ne_bytes(field(bytes, at::LENGTH)?)).ok()?;
        let is_long = length >= usize::try_from(HEAD).ok()?;
        bytes.get(length..).filter(|_| is_long)
    }

    /// The first record, and the bytes after it; `None` at the end, and for anything that is not a
    /// record.
    pub(super) fn take(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = usize::try_from(u32::from_ne_bytes(field(bytes, at::LENGTH)?)).ok()?;
        let (bytes, rest) = bytes.split_at_checked(length)?;
        let path = bytes.get(usize::try_from(HEAD).ok()?..)?;
        let record = Self {
            pid: u32::from_ne_bytes(field(bytes, at::PID)?),
            started: u64::from_ne_bytes(field(bytes, at::STARTED)?),
            fd: u32::from_ne_bytes(field(bytes, at::FD)?),
            flags: u32::from_ne_bytes(field(bytes, at::FLAGS)?),
            pos: i64::from_ne_bytes(field(bytes, at::POS)?),
            ino: u64::from_ne_bytes(field(bytes, at::INO)?),
            magic: u64::from_ne_bytes(field(bytes, at::MAGIC)?),
            size: u64::from_ne_bytes(field(bytes, at::SIZE)?),
            mnt: u32::from_ne_bytes(field(bytes, at::MNT)?),
            links: u32::from_ne_bytes(field(bytes, at::LINKS)?),
            rdev: u32::from_ne_bytes(field(bytes, at::RDEV)?),
            mode: u16::from_ne_bytes(field(bytes, at::MODE)?),
            marks: u16::from_ne_bytes(field(bytes, at::MARKS)?),
            path: path.strip_suffix(b"\0").unwrap_or(path),
        };
        Some((record, rest))
    }

    /// Whether fdinfo has something that the record lacks.
    pub(super) fn has_more(&self) -> bool {
        i32::from(self.marks) & MARK_MORE != 0
    }

    /// Whether it is consistent and complete.
    pub(super) fn is_sure(&self) -> bool {
        i32::from(self.marks) & MARK_UNSURE == 0
    }

    /// When its process started, in the ticks of `/proc/PID/stat`.
    pub(super) fn start_ticks(&self) -> u64 {
        self.started / 10_000_000
    }
}

fn field<const N: usize>(bytes: &[u8], at: i16) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{HEAD, Record};

    #[test]
    fn records_follow_each_other() {
        let mut bytes = vec![0; 2 * HEAD as usize];
        bytes.extend(b"/a\0");
        let second = HEAD as usize;
        bytes[..4].copy_from_slice(&72u32.to_ne_bytes());
        bytes[second..second + 4].copy_from_slice(&75u32.to_ne_bytes());
        bytes[second + 8..second + 16].copy_from_slice(&29_999_999u64.to_ne_bytes());
        bytes[second + 70] = if cfg!(target_endian = "little") { 2 } else { 0 };
        let (first, rest) = Record::take(&bytes).unwrap();
        assert_eq!((first.path, first.is_sure()), (&b""[..], true));
        let (second, rest) = Record::take(rest).unwrap();
        assert_eq!((second.path, second.start_ticks()), (&b"/a"[..], 2));
        assert!(!second.has_more());
        assert!(rest.is_empty());
        assert_eq!(Record::take(rest), None);
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
