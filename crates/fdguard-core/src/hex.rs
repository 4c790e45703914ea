//! Bytes as hexadecimal digits.

/// Two lower-case digits for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let halves = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    halves.map(|half| DIGITS[usize::from(half)]).collect()
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn two_digits_for_each_byte() {
        assert_eq!(encode(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
        assert_eq!(encode(&[]), "");
    }
}
