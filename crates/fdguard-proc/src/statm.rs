//! `/proc/PID/statm`.

use crate::ascii::{decimal, words};

/// Resident memory in bytes, for pages of this size.
#[must_use]
pub fn resident(bytes: &[u8], page_size: usize) -> Option<u64> {
    let pages = decimal(words(bytes).nth(1)?)?;
    pages.checked_mul(u64::try_from(page_size).ok()?)
}

#[cfg(test)]
mod tests {
    use super::resident;

    #[test]
    fn the_second_number_counts_resident_pages() {
        assert_eq!(
            resident(b"2042 1010 800 210 0 300 0\n", 4096),
            Some(1010 * 4096)
        );
        assert_eq!(resident(b"2042 18446744073709551615", 4096), None);
        assert_eq!(resident(b"2042", 4096), None);
    }
}
