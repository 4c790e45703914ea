//! `/proc/PID/mountinfo`.

use bstr::ByteSlice as _;

use super::ascii::{decimal, words};

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

/// The ids of the mounts of local file systems.
pub fn local_mounts(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.lines().filter_map(|line| {
        let (head, tail) = line.split_once_str(b" - ")?;
        let kind = words(tail).next()?;
        LOCAL
            .contains(&kind)
            .then(|| decimal(words(head).next()?))
            .flatten()
    })
}

/// The device numbers `major:minor` of mounts by their ids.
pub fn devices(bytes: &[u8]) -> impl Iterator<Item = (u64, String)> {
    bytes.lines().filter_map(|line| {
        let mut words = words(line);
        let id = decimal(words.next()?)?;
        Some((id, words.nth(1)?.to_str_lossy().into_owned()))
    })
}

/// Whether the proc file system at this place hides the processes of other users (`hidepid`).
#[must_use]
pub fn hides_processes(bytes: &[u8], place: &[u8]) -> bool {
    // The last mount on a path is the visible one.
    let line = bytes
        .lines()
        .rev()
        .find(|line| words(line).nth(4) == Some(place));
    let Some((_, tail)) = line.and_then(|line| line.split_once_str(b" - ")) else {
        return false;
    };
    let mut fields = words(tail);
    if fields.next() != Some(b"proc") {
        return false;
    }
    let mut options = fields
        .nth(1)
        .unwrap_or_default()
        .split(|byte| *byte == b',');
    let value = options.find_map(|option| option.strip_prefix(b"hidepid="));
    matches!(
        value,
        Some(b"1" | b"2" | b"4" | b"noaccess" | b"invisible" | b"ptraceable")
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{hides_processes, local_mounts};

    #[test]
    fn local_file_systems_are_told_from_remote_ones() {
        let text = b"22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 27 0:50 / /mnt rw - nfs4 server:/x rw\n\
            25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw\n";
        assert_eq!(local_mounts(text).collect::<Vec<_>>(), [27, 25]);
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

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _hidden = hides_processes(&bytes, b"/proc");
            prop_assert!(local_mounts(&bytes).count() <= bytes.len());
        }
    }
}
