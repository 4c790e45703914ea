//! `/proc/PID/limits`.

use crate::ascii::{decimal, lines, words};

/// The soft and the hard limit of the line `Max open files`. "unlimited" is `None`, like a missing
/// line.
#[must_use]
pub fn open_files(bytes: &[u8]) -> (Option<u64>, Option<u64>) {
    let Some(line) = lines(bytes).find_map(|line| line.strip_prefix(b"Max open files")) else {
        return (None, None);
    };
    let mut words = words(line);
    let mut limit = || words.next().and_then(decimal);
    (limit(), limit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::open_files;

    #[test]
    fn soft_and_hard_come_apart() {
        let limits = open_files(b"Limit                     Soft Limit           Hard Limit           Units     \nMax cpu time              unlimited            unlimited            seconds   \nMax open files            1024                 524288               files     \n");
        assert_eq!(limits, (Some(1024), Some(524_288)));
    }

    #[test]
    fn unlimited_is_not_a_number() {
        let limits = open_files(
            b"Max open files            unlimited            unlimited            files\n",
        );
        assert_eq!(limits, (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = open_files(&bytes);
        }
    }
}
