//! Releases memory after the start: most of the program is needed only to read the command line.
//!
//! Mapped pages of the executable and the libraries count as fdguard's memory, although they are in
//! the page cache anyway. On request the kernel unmaps them, and maps what runs again, 64 KiB at a
//! time.

#![expect(
    unsafe_code,
    reason = "there is no safe call that says which memory is not needed"
)]

use std::fs;

use fdguard_proc::smaps::{MemoryRegion, regions};
use fdguard_proc::status;
use rustix::mm::{Advice, madvise};

/// Resident memory before and after, in bytes; absent where it could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimResult {
    /// Before.
    pub before: Option<u64>,
    /// After.
    pub after: Option<u64>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: usize,
    end: usize,
}

/// Releases pages that can be read again from their files, and free memory of the allocator.
pub fn give_back() -> TrimResult {
    let before = resident();
    return_free_memory();
    let maps = fs::read("/proc/self/smaps").unwrap_or_default();
    for range in untouched(&maps) {
        forget(range);
    }
    TrimResult {
        before,
        after: resident(),
    }
}

/// fdguard's resident memory.
#[must_use]
pub fn resident() -> Option<u64> {
    status::resident(&fs::read("/proc/self/status").ok()?)
}

fn forget(range: Range) {
    let address = std::ptr::with_exposed_provenance_mut(range.start);
    // SAFETY: `untouched` returns only private mappings of files that cannot be written to and of
    // which no page differs from the file (none is anonymous, none is swapped): what is dropped
    // here is read again from the same file at the next access, byte for byte.
    let advised = unsafe { madvise(address, range.end - range.start, Advice::LinuxDontNeed) };
    // Then it stays mapped, which is harmless.
    let _refused = advised;
}

/// Returns the allocator's free memory.
#[cfg(target_env = "gnu")]
pub fn return_free_memory() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: it takes a number and locks the allocator itself; any thread may call it at any time.
    let _released = unsafe { malloc_trim(0) };
}

/// Returns the allocator's free memory.
#[cfg(not(target_env = "gnu"))]
pub fn return_free_memory() {}

/// The mappings that equal their files. Pages that the loader wrote to and then locked
/// (relocations) also look like a read-only part of the file, but they are private: `Anonymous`
/// counts them, and `Swap`. `Private_Dirty` is less precise: a page of a newly installed file is
/// not on disk yet, but is in the page cache all the same.
fn untouched(smaps: &[u8]) -> Vec<Range> {
    let is_untouched = |region: &MemoryRegion<'_>| {
        matches!(region.mapping.rights, [b'r', b'-', _, b'p'])
            && region.anonymous == Some(0)
            && region.swapped == Some(0)
    };
    let range = |region: MemoryRegion<'_>| {
        let start = usize::try_from(region.mapping.start).ok()?;
        let end = usize::try_from(region.mapping.end).ok()?;
        (start < end).then_some(Range { start, end })
    };
    let regions = regions(smaps).into_iter().filter(is_untouched);
    regions.filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::{Range, give_back, untouched};

    fn mapping(heading: &str, anonymous: u64, dirty: u64, swap: u64) -> String {
        format!(
            "{heading}\nSize: 8 kB\nRss: 8 kB\nPrivate_Dirty: {dirty} kB\nAnonymous: {anonymous} kB\nSwap: {swap} kB\nVmFlags: rd mr mw me\n"
        )
    }

    #[test]
    fn only_what_is_as_the_file_is_given_back() {
        let text = "1000-3000 r-xp 00001000 fe:01 77 /bin/x";
        let taken = |heading: &str, anonymous, dirty, swap| {
            !untouched(mapping(heading, anonymous, dirty, swap).as_bytes()).is_empty()
        };
        let range = Range {
            start: 0x1000,
            end: 0x3000,
        };
        assert_eq!(untouched(mapping(text, 0, 0, 0).as_bytes()), [range]);
        assert!(
            !taken(text, 4, 0, 0),
            "relocated by the loader, then locked"
        );
        assert!(!taken(text, 0, 0, 4));
        assert!(taken(text, 0, 4, 0), "installed a moment ago");
        for other in [
            "1000-3000 rw-p 00001000 fe:01 77 /bin/x",
            "1000-3000 r--s 00001000 fe:01 77 /bin/x",
            "1000-3000 ---p 00001000 fe:01 77 /bin/x",
            "1000-3000 r--p 00000000 00:00 0",
            "1000-3000 r-xp 00000000 00:00 0 [vdso]",
            "3000-1000 r-xp 00001000 fe:01 77 /bin/x",
        ] {
            assert!(!taken(other, 0, 0, 0), "{other}");
        }
    }

    #[test]
    fn a_mapping_of_which_nothing_is_told_is_left_alone() {
        assert_eq!(untouched(b"1000-3000 r-xp 00001000 fe:01 77 /bin/x\n"), []);
        let both = mapping("1000-3000 r-xp 0 fe:01 77 /bin/x", 4, 0, 0)
            + &mapping("4000-5000 r-xp 0 fe:01 77 /bin/x", 0, 0, 0);
        assert_eq!(
            untouched(both.as_bytes()).len(),
            1,
            "each has its own figures"
        );
    }

    /// Code, constants and tables of pointers still work afterwards.
    #[test]
    fn after_giving_back_everything_still_works_and_less_is_resident() {
        let words: Vec<Box<dyn std::fmt::Display>> =
            vec![Box::new(1), Box::new("two"), Box::new(3.5)];
        let trimmed = give_back();
        let text: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert_eq!(text, ["1", "two", "3.5"]);
        assert!(trimmed.after < trimmed.before, "{trimmed:?}");
        assert!(give_back().after <= trimmed.before);
    }
}
