//! `/proc/sys/fs/file-nr`: the open files of the host.

use crate::ascii::{decimal, words};

/// How many files are open, and the most that can be.
#[must_use]
pub fn used_and_most(bytes: &[u8]) -> (Option<u64>, Option<u64>) {
    // The number between them was the free ones, long ago.
    let mut numbers = words(bytes).map(decimal);
    (numbers.next().flatten(), numbers.nth(1).flatten())
}

#[cfg(test)]
mod tests {
    use super::used_and_most;

    #[test]
    fn the_number_between_them_is_skipped() {
        let found = used_and_most(b"1184\t0\t9223372036854775807\n");
        assert_eq!(found, (Some(1184), Some(9_223_372_036_854_775_807)));
        assert_eq!(used_and_most(b"7"), (Some(7), None));
        assert_eq!(used_and_most(b""), (None, None));
    }
}
