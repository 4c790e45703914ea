//! `/proc/stat`: the host, not a process.

use crate::ascii::{decimal, lines};

/// When the host was started, in seconds since 1970.
#[must_use]
pub fn boot_time(bytes: &[u8]) -> Option<i64> {
    let line = lines(bytes).find_map(|line| line.strip_prefix(b"btime "))?;
    i64::try_from(decimal(line)?).ok()
}

#[cfg(test)]
mod tests {
    use super::boot_time;

    #[test]
    fn the_line_is_found_among_the_others() {
        let text = b"cpu  1 2 3\nintr 5\nctxt 7\nbtime 1790000000\nprocesses 9\n";
        assert_eq!(boot_time(text), Some(1_790_000_000));
        assert_eq!(boot_time(b"btime x\n"), None);
        assert_eq!(boot_time(b"cpu 1\n"), None);
    }
}
