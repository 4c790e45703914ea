//! Words and numbers in ASCII.

use bstr::ByteSlice as _;

/// An unsigned decimal number and nothing else, spaces around it allowed.
#[must_use]
pub fn decimal(bytes: &[u8]) -> Option<u64> {
    radix(bytes.trim_ascii(), 10)
}

/// An unsigned octal number, spaces around it allowed.
#[must_use]
pub fn octal(bytes: &[u8]) -> Option<u64> {
    radix(bytes.trim_ascii(), 8)
}

/// An unsigned hexadecimal number with or without `0x`, spaces around it allowed.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> Option<u64> {
    let digits = bytes.trim_ascii();
    radix(digits.strip_prefix(b"0x").unwrap_or(digits), 16)
}

/// The lines. A carriage return stays, because a name may end in one.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (line, tail) = split_at_byte(rest, b'\n').unwrap_or((rest, b""));
        rest = tail;
        Some(line)
    })
}

/// The words of a line, separated by any run of white space.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

/// Splits at the first `byte`. A single-byte search: for such a short needle the general search
/// would spend more time on setup than on searching.
#[must_use]
pub fn split_at_byte(bytes: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.find_byte(byte)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

fn radix(digits: &[u8], base: u32) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let value = char::from(*digit).to_digit(base)?;
        sum.checked_mul(u64::from(base))?
            .checked_add(u64::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::{decimal, hexadecimal, lines, octal};

    #[test]
    fn only_a_newline_ends_a_line() {
        let found: Vec<_> = lines(b"a\r\n\nb").collect();
        assert_eq!(found, [&b"a\r"[..], b"", b"b"]);
        assert_eq!(lines(b"a\n").count(), 1);
        assert_eq!(lines(b"").count(), 0);
    }

    #[test]
    fn only_whole_numbers_are_numbers() {
        assert_eq!(decimal(b" 42\n"), Some(42));
        assert_eq!(decimal(b"-1"), None);
        assert_eq!(decimal(b""), None);
        assert_eq!(decimal(b"99999999999999999999999"), None);
        assert_eq!(octal(b"02100002"), Some(0o2_100_002));
        assert_eq!(hexadecimal(b"0x1F"), Some(31));
    }
}
