//! `/proc/PID/mountinfo`.

use bstr::ByteSlice as _;

use crate::ascii::{decimal, lines, octal, words};

/// File systems in memory or on a local disk: looking up a name never waits for a network or
/// another program, and fdinfo and stat agree on inode numbers.
const LOCAL: [&[u8]; 16] = [
    b"ext2",
    b"ext3",
    b"ext4",
    b"xfs",
    b"btrfs",
    b"f2fs",
    b"tmpfs",
    b"ramfs",
    b"devtmpfs",
    b"devpts",
    b"squashfs",
    b"erofs",
    b"vfat",
    b"jfs",
    b"bcachefs",
    b"hugetlbfs",
];

/// One mount, in the view of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountEntry<'a> {
    /// Its id.
    pub id: u64,
    /// The device, `major:minor` in decimal.
    pub device: &'a [u8],
    /// The mounted part of the file system, escaped.
    pub root: &'a [u8],
    /// Where it is mounted, escaped.
    pub place: &'a [u8],
    /// The kind of file system.
    pub kind: &'a [u8],
    /// The options of the file system, with commas.
    pub options: &'a [u8],
}

impl<'a> MountEntry<'a> {
    /// `22 27 0:21 / /proc rw,relatime shared:1 - proc proc rw`.
    fn parse(line: &'a [u8]) -> Option<Self> {
        // A space in a name is escaped, so this is the separator.
        let (head, tail) = line.split_once_str(b" - ")?;
        let (mut head, mut tail) = (words(head), words(tail));
        Some(Self {
            id: decimal(head.next()?)?,
            device: head.nth(1)?,
            root: head.next()?,
            place: head.next()?,
            kind: tail.next()?,
            options: tail.nth(1).unwrap_or_default(),
        })
    }

    /// Whether its file system is local.
    #[must_use]
    pub fn is_local(&self) -> bool {
        LOCAL.contains(&self.kind)
    }
}

/// Every mount.
pub fn mounts(bytes: &[u8]) -> impl Iterator<Item = MountEntry<'_>> {
    lines(bytes).filter_map(MountEntry::parse)
}

/// The device numbers `major:minor` of mounts by their ids.
pub fn devices(bytes: &[u8]) -> impl Iterator<Item = (u64, String)> {
    mounts(bytes).map(|mount| (mount.id, mount.device.to_str_lossy().into_owned()))
}

/// The decoded name: the kernel writes space, tab, newline, backslash and `#` as three octal
/// digits.
#[must_use]
pub fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((byte, tail)) = rest.split_first() {
        let is_octal = |digits: &&[u8]| digits.iter().all(|digit| matches!(digit, b'0'..=b'7'));
        let digits = tail.get(..3).filter(|_| *byte == b'\\').filter(is_octal);
        let escaped = digits
            .and_then(octal)
            .and_then(|code| u8::try_from(code).ok());
        decoded.push(escaped.unwrap_or(*byte));
        rest = escaped.map_or(tail, |_| &tail[3..]);
    }
    decoded
}

/// Whether the proc file system at this place hides the processes of other users (`hidepid`).
#[must_use]
pub fn hides_processes(bytes: &[u8], place: &[u8]) -> bool {
    // The last mount on a path is the visible one.
    let mount = mounts(bytes)
        .filter(|mount| unescaped(mount.place) == place)
        .last();
    let Some(mount) = mount.filter(|mount| mount.kind == b"proc") else {
        return false;
    };
    let mut options = mount.options.split(|byte| *byte == b',');
    let value = options.find_map(|option| option.strip_prefix(b"hidepid="));
    matches!(
        value,
        Some(b"1" | b"2" | b"4" | b"noaccess" | b"invisible" | b"ptraceable")
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{hides_processes, mounts, unescaped};

    #[test]
    fn local_file_systems_are_told_from_remote_ones() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 27 0:50 / /mnt rw - nfs4 server:/x rw\n\
            25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw\n";
        let local: Vec<_> = mounts(text)
            .filter(|mount| mount.is_local())
            .map(|mount| mount.id)
            .collect();
        assert_eq!(local, [27, 25]);
    }

    #[test]
    fn a_proc_that_hides_processes_is_told() {
        let plain = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n";
        assert!(!hides_processes(plain, b"/proc"));
        let over = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n90 22 0:60 / /proc rw - proc proc rw,gid=5,hidepid=invisible\n";
        assert!(hides_processes(over, b"/proc"));
        assert!(!hides_processes(over, b"/elsewhere"));
        let off = b"22 27 0:21 / /proc rw - proc proc rw,hidepid=off\n";
        assert!(!hides_processes(off, b"/proc"));
    }

    #[test]
    fn names_with_spaces_stay_whole() {
        let text = b"41 27 0:51 /a\\040b /mnt/x\\040-\\040y\\134\xff rw shared:7 master:1 - fuse.sshfs me@h:/ rw,a=b\n41 27\n";
        let found: Vec<_> = mounts(text).collect();
        let [mount] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(
            (mount.device, mount.options),
            (&b"0:51"[..], &b"rw,a=b"[..])
        );
        assert_eq!(unescaped(mount.root), b"/a b");
        assert_eq!(unescaped(mount.place), b"/mnt/x - y\\\xff");
        assert_eq!(unescaped(b"\\04 \\999\\777\\"), b"\\04 \\999\\777\\");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _hidden = hides_processes(&bytes, b"/proc");
            prop_assert!(mounts(&bytes).count() <= bytes.len());
            prop_assert!(unescaped(&bytes).len() <= bytes.len());
        }
    }
}
