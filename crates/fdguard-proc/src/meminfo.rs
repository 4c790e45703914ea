//! `/proc/meminfo`.

use crate::status::number_of;

/// What programs can still take without swapping, in bytes (`MemAvailable`).
#[must_use]
pub fn available(bytes: &[u8]) -> Option<u64> {
    number_of(bytes, b"MemAvailable")?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::available;

    #[test]
    fn what_is_available_is_not_what_is_free() {
        let text =
            b"MemTotal:       16384 kB\nMemFree:          100 kB\nMemAvailable:     8000 kB\n";
        assert_eq!(available(text), Some(8000 * 1024));
        assert_eq!(available(b"MemTotal: 7 kB\n"), None);
        assert_eq!(available(b"MemAvailable: 18446744073709551615 kB\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            prop_assert!(available(&bytes).is_none_or(|size| size % 1024 == 0));
        }
    }
}
