//! `/proc/PID/environ`: the environment that a process was started with.

/// The values of a variable: a list may contain it twice.
pub fn values<'a>(bytes: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    bytes
        .split(|byte| *byte == 0)
        .filter_map(move |entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::values;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let text = b"XA=0\0A=1\0B=A=3\0AB=4\0A=\xff=2\0A";
        let found: Vec<_> = values(text, "A").collect();
        assert_eq!(found, [&b"1"[..], b"\xff=2"]);
        assert_eq!(values(b"", "A").count(), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            prop_assert!(values(&bytes, "").count() <= bytes.len());
        }
    }
}
