//! `/proc/PID/smaps` and `smaps_rollup`.

use crate::ascii::{lines, split_at_byte, words};
use crate::maps::{self, MapsEntry, MapsRegion};
use crate::status::number_of;

/// A mapping of a file, with how much of it differs from the file, in KiB; absent if the kernel
/// does not report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion<'a> {
    /// The mapping.
    pub mapping: MapsEntry<'a>,
    /// Private pages.
    pub anonymous: Option<u64>,
    /// Private pages that are swapped out.
    pub swapped: Option<u64>,
}

/// Every mapping of a file in `smaps`.
#[must_use]
pub fn regions(bytes: &[u8]) -> Vec<MemoryRegion<'_>> {
    let mut all = Vec::new();
    // Whether the lines belong to the last region: not those of anonymous memory.
    let mut is_file = false;
    for line in lines(bytes) {
        if maps::address_range(line).is_some() {
            let mapping = MapsEntry::parse(line);
            is_file = mapping.is_some();
            all.extend(mapping.map(|mapping| MemoryRegion {
                mapping,
                anonymous: None,
                swapped: None,
            }));
        } else if let (true, Some(region)) = (is_file, all.last_mut()) {
            match split_at_byte(line, b':') {
                Some((b"Anonymous", _)) => region.anonymous = number_of(line, b"Anonymous"),
                Some((b"Swap", _)) => region.swapped = number_of(line, b"Swap"),
                _ => {}
            }
        }
    }
    all
}

/// The regions whose line `VmFlags` has this flag: two letters, such as `dc` for memory that a copy
/// of the process does not get.
pub fn flagged<'a>(bytes: &'a [u8], flag: &[u8]) -> impl Iterator<Item = MapsRegion<'a>> {
    let mut region = None;
    lines(bytes).filter_map(move |line| {
        if maps::address_range(line).is_some() {
            region = MapsRegion::parse(line);
            return None;
        }
        let flags = line.strip_prefix(b"VmFlags:")?;
        let has_flag = words(flags).any(|one| one == flag);
        region.take().filter(|_| has_flag)
    })
}

/// The process's proportional share of memory in bytes, from `smaps_rollup`: shared pages are
/// divided equally.
#[must_use]
pub fn proportional(bytes: &[u8]) -> Option<u64> {
    number_of(bytes, b"Pss")?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{flagged, proportional, regions};

    #[test]
    fn each_mapping_has_its_own_figures() {
        let text = b"1000-3000 r-xp 00001000 fe:01 77       /bin/x\nSize: 8 kB\nAnonymous:     4 kB\nSwap: 0 kB\nSwapPss: 9 kB\n\
            3000-5000 rw-p 00000000 00:00 0      [heap]\nAnonymous: 8 kB\nSwap: 8 kB\n\
            6000-7000 r--p 00000000 fe:01 78     /lib/y\nVmFlags: rd mr mw me\n";
        let found = regions(text);
        let figures: Vec<_> = found
            .iter()
            .map(|one| (one.mapping.start, one.anonymous, one.swapped))
            .collect();
        assert_eq!(figures, [(0x1000, Some(4), Some(0)), (0x6000, None, None)]);
    }

    #[test]
    fn flags_belong_to_the_region_above_them() {
        let text =
            b"1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nVmFlags: rd wr mr mw me dc ac \n\
            3000-5000 rw-p 00000000 00:00 0      [heap]\nVmFlags: rd wr mr mw me ac \n\
            6000-7000 r--p 00000000 fe:01 78     /lib/y\nVmFlags: dc\nVmFlags: dc\n";
        let starts =
            |flag: &[u8]| -> Vec<u64> { flagged(text, flag).map(|region| region.start).collect() };
        assert_eq!(starts(b"dc"), [0x1000, 0x6000]);
        assert_eq!(starts(b"ac"), [0x1000, 0x3000]);
        assert!(starts(b"d").is_empty());
        assert_eq!(flagged(b"VmFlags: dc\n", b"dc").count(), 0);
    }

    #[test]
    fn the_share_is_the_line_pss() {
        let text = b"5500-7fff ---p 00000000 00:00 0    [rollup]\nRss:     900 kB\nPss:    431 kB\nPss_Dirty: 200 kB\n";
        assert_eq!(proportional(text), Some(431 * 1024));
        assert_eq!(proportional(b"Pss_Dirty: 200 kB\n"), None);
        assert_eq!(proportional(b"Pss: 18446744073709551615 kB\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            prop_assert!(regions(&bytes).len() <= bytes.len());
            prop_assert!(flagged(&bytes, b"dc").count() <= bytes.len());
            let _ = proportional(&bytes);
        }
    }
}
