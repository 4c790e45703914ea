//! Characters of Python strings as UTF-8.

/// One character of 1, 2 or 4 bytes.
#[inline]
#[must_use]
pub fn encode_character<'b>(character: &[u8], utf8: &'b mut [u8; 4]) -> &'b [u8] {
    let code = match *character {
        [a] => u32::from(a),
        [a, b] => u32::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u32::from_le_bytes([a, b, c, d]),
        _ => u32::MAX,
    };
    // U+DC80 to U+DCFF are bytes of a name that is not UTF-8.
    if let 0xdc80..=0xdcff = code {
        let [byte, ..] = code.to_le_bytes();
        let [first, ..] = utf8;
        *first = byte;
        return core::slice::from_ref(first);
    }
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    character.encode_utf8(utf8).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::encode_character;

    #[test]
    fn characters_of_every_width_become_utf8_and_escaped_bytes_themselves() {
        for (character, utf8) in [
            (&[0x41][..], &b"A"[..]),
            (&[0xe9], "é".as_bytes()),
            (&[0xac, 0x20], "€".as_bytes()),
            (&[0x00, 0xf6, 0x01, 0x00], "😀".as_bytes()),
            (&[0xff, 0xdc], b"\xff"),
            (&[0x00, 0xd8], "\u{fffd}".as_bytes()),
            (&[], "\u{fffd}".as_bytes()),
        ] {
            assert_eq!(encode_character(character, &mut [0; 4]), utf8);
        }
    }
}
