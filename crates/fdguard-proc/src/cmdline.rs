//! `/proc/PID/cmdline`.

/// The arguments. A zero byte ends each one; a program that rewrites them may leave the last out.
pub fn arguments(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    let words = bytes.split(|byte| *byte == 0);
    words.filter(|_| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::arguments;

    #[test]
    fn arguments_end_in_a_zero_each() {
        let words: Vec<_> = arguments(b"python3\0-c\0\0").collect();
        assert_eq!(words, [&b"python3"[..], b"-c", b""]);
        assert_eq!(arguments(b"a title").collect::<Vec<_>>(), [b"a title"]);
        assert_eq!(arguments(b"").count(), 0);
    }

    proptest! {
        #[test]
        fn whole_arguments_come_back(words: Vec<Vec<u8>>) {
            let words: Vec<_> = words.into_iter().filter(|word| !word.contains(&0)).collect();
            let text: Vec<u8> = words.iter().flat_map(|word| [word, &b"\0"[..]].concat()).collect();
            // One empty argument is the same bytes as none with a stray zero.
            prop_assume!(words != [Vec::<u8>::new()]);
            prop_assert!(arguments(&text).eq(words));
        }
    }
}
