//! `/proc/PID/fdinfo/N`: the common head, then lines that depend on the kind of file.

use bstr::ByteSlice as _;

use crate::ascii::{decimal, hexadecimal, lines, octal, split_at_byte, words};
use crate::locks::HeldLock;

const O_CLOEXEC: u64 = 0o2_000_000;
const O_PATH: u64 = 0o10_000_000;

/// One fdinfo file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fdinfo<'a> {
    /// Position; absent if negative or missing.
    pub pos: Option<u64>,
    /// Open flags, close-on-exec included.
    pub flags: Option<u64>,
    /// Mount id (since Linux 3.15).
    pub mnt: Option<u64>,
    /// Inode number (since Linux 5.14).
    pub ino: Option<u64>,
    /// Everything after the head, unparsed.
    pub rest: &'a [u8],
}

/// A registration in an epoll instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpollTarget {
    /// The number it was registered with.
    pub fd: u32,
    /// Inode of the registered file.
    pub ino: Option<u64>,
    /// Device of the registered file, as the kernel encodes it.
    pub sdev: Option<u64>,
}

impl<'a> Fdinfo<'a> {
    /// Reads the head; everything else stays in `rest`.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Self {
        let mut info = Self::default();
        let mut rest = bytes;
        while let Some((key, value, tail)) = split_line(rest) {
            match key {
                b"pos" => info.pos = decimal(value),
                b"flags" => info.flags = octal(value),
                b"mnt_id" => info.mnt = decimal(value),
                b"ino" => info.ino = decimal(value),
                _ => break,
            }
            rest = tail;
        }
        info.rest = rest;
        info
    }

    /// Whether it closes at exec.
    #[must_use]
    pub fn cloexec(&self) -> Option<bool> {
        self.flags.map(|flags| flags & O_CLOEXEC != 0)
    }

    /// Whether it has the flags of protection's placeholders: unusable, and opened in a way in
    /// which no program opens a device.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        const O_NOFOLLOW: u64 = 0o400_000;
        let both = O_PATH | O_NOFOLLOW;
        self.flags.is_some_and(|flags| flags & both == both)
    }

    /// The network interface behind `/dev/net/tun`.
    #[must_use]
    pub fn interface(&self) -> Option<String> {
        let name = self.field(b"iff")?.to_str_lossy();
        (!name.is_empty()).then(|| name.into_owned())
    }

    /// The `key: value` lines after the head.
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.rest;
        std::iter::from_fn(move || {
            let (key, value, tail) = split_line(rest)?;
            rest = tail;
            Some((key, value))
        })
    }

    /// The value of one field after the head.
    #[must_use]
    pub fn field(&self, key: &[u8]) -> Option<&'a [u8]> {
        self.fields()
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value)
    }

    /// The number in one field after the head.
    #[must_use]
    pub fn number(&self, key: &[u8]) -> Option<u64> {
        decimal(self.field(key)?)
    }

    /// The lock and lease lines.
    pub fn locks(&self) -> impl Iterator<Item = HeldLock> + use<'a> {
        self.fields()
            .filter(|(key, _)| *key == b"lock")
            .filter_map(|(_, value)| HeldLock::parse(value))
    }

    /// What an inotify descriptor watches: device and inode. The kernel packs twenty bits of minor
    /// number into the device.
    pub fn watched(&self) -> impl Iterator<Item = ((u64, u64), u64)> + use<'a> {
        let lines = lines(self.rest);
        let lines = lines.filter_map(|line| line.strip_prefix(b"inotify wd:"));
        lines.filter_map(|line| {
            let value = |name: &[u8]| {
                let found = words(line).find_map(|word| word.strip_prefix(name));
                hexadecimal(found?)
            };
            let device = value(b"sdev:")?;
            Some(((device >> 20, device & 0xf_ffff), value(b"ino:")?))
        })
    }

    /// The registrations of an epoll instance.
    pub fn epoll_targets(&self) -> impl Iterator<Item = EpollTarget> + use<'a> {
        self.fields()
            .filter(|(key, _)| *key == b"tfd")
            .filter_map(|(_, value)| {
                let mut words = words(value);
                let fd = u32::try_from(decimal(words.next()?)?).ok()?;
                let mut target = EpollTarget {
                    fd,
                    ino: None,
                    sdev: None,
                };
                for word in words {
                    if let Some(ino) = word.strip_prefix(b"ino:") {
                        target.ino = hexadecimal(ino);
                    } else if let Some(sdev) = word.strip_prefix(b"sdev:") {
                        target.sdev = hexadecimal(sdev);
                    }
                }
                Some(target)
            })
    }

    /// Number of watches of an inotify or fanotify descriptor.
    #[must_use]
    pub fn watches(&self) -> u64 {
        lines(self.rest)
            .filter(|line| {
                line.starts_with(b"inotify wd:")
                    || line.starts_with(b"fanotify ino:")
                    || line.starts_with(b"fanotify mnt_id:")
                    || line.starts_with(b"fanotify sdev:")
                    || line.starts_with(b"fanotify mnt_ns:")
            })
            .count() as u64
    }

    /// The signals of a signalfd.
    #[must_use]
    pub fn signals(&self) -> Vec<u8> {
        let mask = self.field(b"sigmask").and_then(hexadecimal).unwrap_or(0);
        (1..=64u8)
            .filter(|signal| mask >> (signal - 1) & 1 == 1)
            .collect()
    }

    /// The process behind a pidfd: `None` if the line is missing, `Some(None)` once it is gone (-1)
    /// or in a namespace that is not visible (0).
    #[must_use]
    pub fn pidfd(&self) -> Option<PidfdTarget> {
        let value = self.field(b"Pid")?.trim_ascii();
        Some(match decimal(value) {
            Some(0) => PidfdTarget::Foreign,
            Some(pid) => u32::try_from(pid).map_or(PidfdTarget::Foreign, PidfdTarget::Pid),
            None => PidfdTarget::Gone,
        })
    }

    /// Index of a pseudo-terminal master.
    #[must_use]
    pub fn tty_index(&self) -> Option<u32> {
        u32::try_from(self.number(b"tty-index")?).ok()
    }
}

/// The target of a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidfdTarget {
    /// A process that was not reaped yet.
    Pid(u32),
    /// It exited and was reaped.
    Gone,
    /// It is outside the pid namespace of this `/proc`.
    Foreign,
}

/// Splits off one line at its first colon; the value keeps its spaces. A line without a colon is a
/// key without a value.
fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    if bytes.is_empty() {
        return None;
    }
    let (line, tail) = split_at_byte(bytes, b'\n').unwrap_or((bytes, b""));
    let (key, value) = split_at_byte(line, b':').unwrap_or((line, b""));
    Some((key, value.trim_ascii(), tail))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Fdinfo, PidfdTarget};

    #[test]
    fn the_head_and_the_rest_come_apart() {
        let info = Fdinfo::parse(b"pos:\t64\nflags:\t02100001\nmnt_id:\t27\nino:\t99\nlock:\t1: POSIX  ADVISORY  WRITE 2038 fe:00:99 0 EOF\nlock:\t2: FLOCK  ADVISORY  READ 2038 fe:00:99 5 9\n");
        assert_eq!(
            (info.pos, info.mnt, info.ino),
            (Some(64), Some(27), Some(99))
        );
        assert_eq!(info.flags, Some(0o2_100_001));
        assert_eq!(info.cloexec(), Some(true));
        let locks: Vec<_> = info.locks().collect();
        assert_eq!(
            (locks[0].kind.as_str(), locks[0].access.as_str()),
            ("POSIX", "WRITE")
        );
        assert_eq!((locks[0].start, locks[0].end), (0, None));
        assert_eq!((locks[1].start, locks[1].end), (5, Some(9)));
    }

    #[test]
    fn each_kind_tells_its_own() {
        assert_eq!(
            Fdinfo::parse(b"sigmask:\t0000000000000201\n").signals(),
            [1, 10]
        );
        assert_eq!(
            Fdinfo::parse(b"Pid:\t-1\nNSpid:\t-1\n").pidfd(),
            Some(PidfdTarget::Gone)
        );
        assert_eq!(
            Fdinfo::parse(b"Pid:\t0\n").pidfd(),
            Some(PidfdTarget::Foreign)
        );
        assert_eq!(
            Fdinfo::parse(b"Pid:\t12\n").pidfd(),
            Some(PidfdTarget::Pid(12))
        );
        assert_eq!(Fdinfo::parse(b"tty-index:\t3\n").tty_index(), Some(3));
        let ring = Fdinfo::parse(b"UserFiles:\t4\nUserBufs:\tx\n");
        assert_eq!(
            (ring.number(b"UserFiles"), ring.number(b"UserBufs")),
            (Some(4), None)
        );
    }

    #[test]
    fn watched_files_and_interfaces_are_told() {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02004000\ninotify wd:2 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8 f_handle:7e9e\ninotify wd:1 ino:a sdev:fe00000 mask:2\n");
        let watched: Vec<_> = info.watched().collect();
        assert_eq!(watched, [((8, 19), 0x9e7e), ((254, 0), 10)]);
        let tun = Fdinfo::parse(b"pos:\t0\nflags:\t02\niff:\ttun0\n");
        assert_eq!(tun.interface().as_deref(), Some("tun0"));
        assert_eq!(Fdinfo::parse(b"iff:\t\n").interface(), None);
    }

    #[test]
    fn epoll_registrations_carry_the_file_they_were_made_for() {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02\ntfd:        7 events:       1f data:     7fec00000007  pos:0 ino:12 sdev:10\ntfd:       23 events: 19 data: 0\n");
        let targets: Vec<_> = info.epoll_targets().collect();
        assert_eq!(
            (targets[0].fd, targets[0].ino, targets[0].sdev),
            (7, Some(0x12), Some(0x10))
        );
        assert_eq!((targets[1].fd, targets[1].ino), (23, None));
    }

    #[test]
    fn lines_nobody_knows_are_kept() {
        let info = Fdinfo::parse(b"pos:\t0\nflags:\t02\nnovelty: yes\nand-a-line-without-colon\n");
        let fields: Vec<_> = info.fields().collect();
        assert_eq!(
            fields,
            [
                (&b"novelty"[..], &b"yes"[..]),
                (b"and-a-line-without-colon", b"")
            ]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let info = Fdinfo::parse(&bytes);
            drop((info.cloexec(), info.is_kept(), info.watches(), info.interface()));
            drop((info.signals(), info.pidfd(), info.tty_index()));
            let lines = info.fields().count();
            prop_assert!(info.locks().count() <= lines && info.epoll_targets().count() <= lines);
            prop_assert!(info.watched().count() <= bytes.len());
        }
    }
}
