//! `/proc/loadavg`.

use crate::ascii::{decimal, split_at_byte, words};

/// How many tasks the host has: `0.20 0.18 0.12 1/80 11206` has 80.
#[must_use]
pub fn tasks(bytes: &[u8]) -> Option<u64> {
    decimal(split_at_byte(words(bytes).nth(3)?, b'/')?.1)
}

#[cfg(test)]
mod tests {
    use super::tasks;

    #[test]
    fn tasks_stand_behind_the_slash() {
        assert_eq!(tasks(b"0.20 0.18 0.12 1/80 11206\n"), Some(80));
        assert_eq!(tasks(b"nonsense"), None);
    }
}
