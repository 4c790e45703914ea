//! `/proc/locks`: every lock and lease that the kernel keeps.

use bstr::ByteSlice as _;

use crate::ascii::{decimal, lines, words};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// `POSIX`, `FLOCK`, `OFDLCK`, `LEASE`, `DELEG`.
    pub kind: String,
    /// `READ` or `WRITE`.
    pub access: String,
    /// The process that took it; absent for locks that belong to an open file and not to a process.
    pub pid: Option<u32>,
    /// Device `(major, minor)` of the file system, which for some file systems differs from `stat`.
    pub device: (u32, u32),
    /// The inode.
    pub ino: u64,
    /// First byte.
    pub start: u64,
    /// Last byte; absent for "to the end".
    pub end: Option<u64>,
    /// Whether this one is waiting for another one.
    pub waits: bool,
}

impl HeldLock {
    /// `1: POSIX  ADVISORY  READ 359 fe:00:11691 1073741826 1073742335`, with `->` before the kind
    /// for a waiting one.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let mut words = words(line);
        let _ordinal = words.next()?;
        let mut kind = words.next()?;
        let waits = kind == b"->";
        if waits {
            kind = words.next()?;
        }
        let _strength = words.next()?;
        let access = words.next()?;
        let pid = decimal(words.next()?).and_then(|pid| u32::try_from(pid).ok());
        let (device, ino) = file(words.next()?)?;
        Some(Self {
            kind: kind.to_str_lossy().into_owned(),
            access: access.to_str_lossy().into_owned(),
            pid: pid.filter(|pid| *pid != 0),
            device,
            ino,
            start: decimal(words.next()?)?,
            end: decimal(words.next()?),
            waits,
        })
    }

    /// Whether it covers all of these bytes.
    #[must_use]
    pub fn covers(&self, first: u64, last: u64) -> bool {
        self.start <= first && self.end.is_none_or(|end| end >= last)
    }
}

/// `fe:00:11691`: the device in hexadecimal, the inode in decimal.
fn file(word: &[u8]) -> Option<((u32, u32), u64)> {
    let mut parts = word.to_str().ok()?.splitn(3, ':');
    let major = u32::from_str_radix(parts.next()?, 16).ok()?;
    let minor = u32::from_str_radix(parts.next()?, 16).ok()?;
    Some(((major, minor), parts.next()?.parse().ok()?))
}

/// Every lock of the text.
#[must_use]
pub fn locks(bytes: &[u8]) -> Vec<HeldLock> {
    lines(bytes).filter_map(HeldLock::parse).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::locks;

    #[test]
    fn lines_of_a_real_kernel() {
        let text = b"1: POSIX  ADVISORY  READ 359 fe:00:11691 1073741826 1073742335\n\
            2: OFDLCK ADVISORY  WRITE -1 00:13:99 0 EOF\n\
            2: -> POSIX  ADVISORY  WRITE 400 00:13:99 5 9\n\
            3: FLOCK  ADVISORY  WRITE 12 fe:00:7 0 EOF\n";
        let found = locks(text);
        assert_eq!(found.len(), 4);
        assert_eq!(
            (found[0].pid, found[0].device, found[0].ino),
            (Some(359), (0xfe, 0), 11691)
        );
        assert!(found[0].covers(1_073_741_826, 1_073_742_335));
        assert!(!found[0].covers(1_073_741_824, 1_073_742_335));
        assert_eq!((found[1].pid, found[1].end), (None, None));
        assert!(found[2].waits && !found[1].waits);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            prop_assert!(locks(&bytes).len() <= bytes.len());
        }
    }
}
