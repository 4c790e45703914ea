//! `/proc/PID/maps`.

use bstr::ByteSlice as _;

use crate::ascii::{decimal, hexadecimal, lines, split_at_byte};

/// A memory mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsEntry<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// `r-xp`: reading, writing, executing; private or shared.
    pub rights: &'a [u8],
    /// Whether code may run from it.
    pub executable: bool,
    /// Whether writes to it go into the file.
    pub writes_through: bool,
    /// The device, as the kernel writes it.
    pub device: &'a [u8],
    /// The inode number.
    pub ino: u64,
    /// The file's name in the process's own view, followed by ` (deleted)` if it is gone.
    pub path: &'a [u8],
}

/// A line: memory of a file, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapsRegion<'a> {
    /// Its first address.
    pub start: u64,
    /// The address after its last.
    pub end: u64,
    /// `r-xp`: reading, writing, executing; private or shared.
    pub rights: &'a [u8],
    /// Where in the file it begins.
    pub offset: u64,
    /// The device, as the kernel writes it.
    pub device: &'a [u8],
    /// The inode number; 0 without a file.
    pub ino: u64,
    /// The name of the file, or `[heap]` and the like, or nothing.
    pub path: &'a [u8],
}

impl<'a> MapsRegion<'a> {
    /// Whether it is private memory of the program's own: of no file, and none that the kernel
    /// made, such as the stack. A name that the program gave (`[anon:NAME]`, since Linux 5.17) is
    /// none.
    #[must_use]
    pub fn is_private_memory(&self) -> bool {
        let has_no_name = self.path.is_empty() || self.path.starts_with(b"[anon:");
        let is_private = self.rights.get(3) == Some(&b'p');
        is_private && self.ino == 0 && has_no_name && self.start < self.end
    }

    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let (start, end) = address_range(line)?;
        let (_range, rest) = split_at_byte(line, b' ')?;
        let (rights, rest) = split_at_byte(rest, b' ')?;
        let (offset, rest) = split_at_byte(rest, b' ')?;
        let (device, rest) = split_at_byte(rest, b' ')?;
        let (ino, path) = split_at_byte(rest, b' ').unwrap_or((rest, b""));
        Some(Self {
            start,
            end,
            rights,
            offset: hexadecimal(offset)?,
            device,
            ino: decimal(ino)?,
            path: path.trim_start_with(|c| c == ' '),
        })
    }
}

impl<'a> MapsEntry<'a> {
    /// Reads one line; `None` for memory that is not of a file.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let region = MapsRegion::parse(line)?;
        // Without an inode it is anonymous memory, or the kernel's: [heap], [vdso].
        if region.ino == 0 || !region.path.starts_with(b"/") {
            return None;
        }
        let rights = region.rights;
        Some(Self {
            start: region.start,
            end: region.end,
            rights,
            executable: rights.get(2) == Some(&b'x'),
            writes_through: rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's'),
            device: region.device,
            ino: region.ino,
            path: region.path,
        })
    }
}

/// The addresses at the beginning of a line: the first, and the one after the last.
pub(crate) fn address_range(line: &[u8]) -> Option<(u64, u64)> {
    let (range, _) = split_at_byte(line, b' ')?;
    let (start, end) = split_at_byte(range, b'-')?;
    Some((hexadecimal(start)?, hexadecimal(end)?))
}

/// Every region of memory.
pub fn regions(bytes: &[u8]) -> impl Iterator<Item = MapsRegion<'_>> {
    lines(bytes).filter_map(MapsRegion::parse)
}

/// Every region of private memory.
pub fn private_memory(bytes: &[u8]) -> impl Iterator<Item = MapsRegion<'_>> {
    regions(bytes).filter(MapsRegion::is_private_memory)
}

/// Every mapping of a file.
pub fn mappings(bytes: &[u8]) -> impl Iterator<Item = MapsEntry<'_>> {
    lines(bytes).filter_map(MapsEntry::parse)
}

/// The decoded name: the kernel writes a newline as `\012`, and escapes nothing else.
#[must_use]
pub fn unescaped(path: &[u8]) -> Vec<u8> {
    path.replace(b"\\012", b"\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{mappings, private_memory, regions, unescaped};

    const TEXT: &[u8] = b"\
55d5c7a00000-55d5c7a02000 r--p 00000000 fe:00 131 /usr/bin/sleep
55d5c7a02000-55d5c7a06000 r-xp 00002000 fe:00 131                        /usr/bin/sleep
55d5c8e00000-55d5c8e21000 rw-p 00000000 00:00 0                          [heap]
7f1200000000-7f1200021000 rw-p 00000000 00:00 0 
7f1210000000-7f1210001000 r-xp 00000000 00:01 1027                       /memfd:a b (deleted)
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn files_are_told_from_memory() {
        let found: Vec<_> = mappings(TEXT).collect();
        let names: Vec<_> = found.iter().map(|one| (one.executable, one.path)).collect();
        let wanted: [(bool, &[u8]); 3] = [
            (false, b"/usr/bin/sleep"),
            (true, b"/usr/bin/sleep"),
            (true, b"/memfd:a b (deleted)"),
        ];
        assert_eq!(names, wanted);
        let code = &found[1];
        assert_eq!((code.start, code.end), (0x55d5_c7a0_2000, 0x55d5_c7a0_6000));
        assert_eq!((code.device, code.ino), (&b"fe:00"[..], 131));
        assert_eq!(code.rights, b"r-xp");
    }

    #[test]
    fn private_memory_has_no_file_and_no_name_of_the_kernels() {
        let range = |line: &str| {
            let mut found = private_memory(line.as_bytes());
            found.next().map(|region| (region.start, region.end))
        };
        for line in [
            "1000-3000 rw-p 00000000 00:00 0 ",
            "1000-3000 ---p 00000000 00:00 0",
            "1000-3000 rw-p 00000000 00:00 0          [anon: Go: heap]",
        ] {
            assert_eq!(range(line), Some((0x1000, 0x3000)), "{line}");
        }
        for other in [
            "1000-3000 rw-s 00000000 00:00 0 ",
            "1000-3000 rw-p 00000000 00:00 0 [heap]",
            "1000-3000 rw-s 00000000 00:01 7 [anon_shmem:x]",
            "1000-3000 r--p 00000000 08:01 7 /usr/bin/node",
            "3000-1000 rw-p 00000000 00:00 0 ",
            "AnonHugePages:         0 kB",
        ] {
            assert_eq!(range(other), None, "{other}");
        }
    }

    #[test]
    fn a_newline_in_a_name_comes_back() {
        assert_eq!(unescaped(b"/tmp/a\\012b"), b"/tmp/a\nb");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let all = regions(&bytes).count();
            prop_assert!(all <= bytes.len() && mappings(&bytes).count() <= all);
        }
    }
}
