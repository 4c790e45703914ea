//! The shape of a TLS record, which identifies bytes that belong in a connection.

/// The largest body of a record: 2^14, plus 2048 for encryption overhead.
const LARGEST: u16 = 18_432;

/// The kind of record that these bytes begin, in words.
pub(super) fn record(bytes: &[u8]) -> Option<String> {
    let &[kind, 3, 0..=4, high, low, ..] = bytes else {
        return None;
    };
    let kind = match kind {
        0x14 => "change cipher spec",
        0x15 => "alert",
        0x16 => "handshake",
        0x17 => "application data",
        _ => return None,
    };
    let length = u16::from_be_bytes([high, low]);
    let is_plausible = length > 0 && length <= LARGEST;
    is_plausible.then(|| format!("TLS record ({kind}, {length} bytes)"))
}

#[cfg(test)]
mod tests {
    use super::record;

    #[test]
    fn r40_the_alert_of_source_004_is_a_tls_record() {
        let bytes = b"\x17\x03\x03\x00\x13abcdefghijk";
        assert_eq!(
            record(bytes).unwrap(),
            "TLS record (application data, 19 bytes)"
        );
    }

    #[test]
    fn r40_other_bytes_are_not() {
        let none: [&[u8]; 6] = [
            b"",
            b"\x17\x03\x03\x00",
            b"SQLite format 3\0",
            b"\x17\x03\x05\x00\x13",
            b"\x17\x03\x03\xff\xff",
            b"\x17\x03\x03\x00\x00",
        ];
        for bytes in none {
            assert_eq!(record(bytes), None, "{bytes:?}");
        }
    }
}
