//! `/proc/PID/auxv`: what the kernel hands to a program that it starts.

/// The start of the dynamic loader; 0 if the program has none.
pub const BASE: u64 = 7;
/// The first instruction of the program.
pub const ENTRY: u64 = 9;

/// Of each entry, a key and a value.
const ENTRY_SIZE: usize = 16;

/// The value of a key in the vector of a 64-bit program.
#[must_use]
pub fn value(bytes: &[u8], key: u64) -> Option<u64> {
    let (entries, _rest) = bytes.as_chunks::<ENTRY_SIZE>();
    let mut pairs = entries.iter().filter_map(|entry| {
        let (key, value) = entry.split_first_chunk()?;
        Some((u64::from_le_bytes(*key), word(value)?))
    });
    pairs
        .find(|(found, _)| *found == key)
        .map(|(_, value)| value)
}

fn word(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BASE, ENTRY, value};

    fn vector(entries: &[(u64, u64)]) -> Vec<u8> {
        let words = entries.iter().flat_map(|(key, value)| [*key, *value]);
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn a_value_is_found_by_its_key() {
        let bytes = vector(&[(33, 0x7ffd), (ENTRY, 0x401_020), (BASE, 0), (0, 0)]);
        assert_eq!(value(&bytes, ENTRY), Some(0x401_020));
        assert_eq!(value(&bytes, BASE), Some(0));
        assert_eq!(value(&bytes, 0x7ffd), None);
        assert_eq!(value(&bytes[..31], ENTRY), None);
        assert_eq!(value(b"", ENTRY), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>, key: u64) {
            prop_assert!(value(&bytes, key).is_none() || bytes.len() >= 16);
        }
    }
}
