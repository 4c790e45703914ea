//! `/proc/PID/comm`.

/// The name: the kernel adds one newline, and a name may end in others.
#[must_use]
pub fn name(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\n").unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn only_the_kernels_newline_is_removed() {
        assert_eq!(name(b"a (b) \xff\n"), b"a (b) \xff");
        assert_eq!(name(b"a\n\n"), b"a\n");
        assert_eq!(name(b""), b"");
    }
}
