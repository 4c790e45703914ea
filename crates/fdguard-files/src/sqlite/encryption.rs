//! Detects encrypted databases: pages written by SQLCipher and similar tools are indistinguishable
//! from random bytes.
//!
//! A damaged database never looks like that: even if its header is overwritten, the rest of the
//! first page still has schema text, numbers and zeros.

use super::header::{DatabaseHeader, MAGIC};

/// The smallest page, of which every database is a multiple.
const SMALLEST_PAGE: u64 = 512;
/// The bytes that some tools leave readable at the start, so that programs recognise a database.
const READABLE: usize = 32;
/// How many bytes of each part are judged: enough to be sure.
pub const PART: u64 = 4096;
/// For random bytes, chi-square over 256 values is 255 with a standard deviation of 23: seven of
/// them to either side.
const RANDOM: std::ops::Range<f64> = 95.0..415.0;

/// Offsets of the other parts that are examined together with the first.
#[must_use]
pub fn places(size: u64) -> Vec<u64> {
    if size < 2 * PART {
        return Vec::new();
    }
    vec![size / 2, size - PART]
}

/// Whether these are the first bytes, and parts from [`places`], of an encrypted database of this
/// size.
#[must_use]
pub fn is_encrypted(first: &[u8], size: u64, parts: &[Vec<u8>]) -> bool {
    if size == 0 || !size.is_multiple_of(SMALLEST_PAGE) || !is_hidden(first) {
        return false;
    }
    let page = &first[..first.len().min(usize::try_from(PART).unwrap_or(usize::MAX))];
    let Some(page) = page.get(READABLE..) else {
        return false;
    };
    is_random(page) && parts.iter().all(|part| is_random(part))
}

/// Whether SQLite without a key could not have written this header.
fn is_hidden(first: &[u8]) -> bool {
    let Some(header) = DatabaseHeader::read(first) else {
        return false;
    };
    if !first.starts_with(MAGIC) {
        return true;
    }
    // Readable up to byte 31: each page has room for an authentication tag, and nothing else fits.
    header.reserved > 0 && !header.unused_is_zero && !matches!(header.first_page, Some(5 | 13))
}

fn is_random(bytes: &[u8]) -> bool {
    if bytes.len() < 256 {
        return false;
    }
    let mut counts = [0_u32; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1;
    }
    #[expect(clippy::cast_precision_loss, reason = "a few thousand bytes")]
    let expected = bytes.len() as f64 / 256.0;
    let distance = |count: &u32| (f64::from(*count) - expected).powi(2) / expected;
    RANDOM.contains(&counts.iter().map(distance).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::is_encrypted;

    /// Deterministic bytes without a pattern.
    fn noise(length: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..length).map(next).collect()
    }

    #[test]
    fn noise_of_whole_pages_is_taken_for_ciphertext() {
        for size in [512, 1024, 4096] {
            let bytes = noise(size);
            assert!(is_encrypted(&bytes, size as u64, &[]), "{size}");
            assert!(!is_encrypted(&bytes, size as u64 + 1, &[]));
        }
        let zeros = vec![vec![0; 4096]];
        assert!(!is_encrypted(&noise(4096), 65_536, &zeros));
    }

    #[test]
    fn a_readable_header_before_ciphertext_is_recognised_too() {
        let mut bytes = noise(4096);
        bytes[..24].copy_from_slice(b"SQLite format 3\0\x10\0\x02\x02\x50\x40\x20\x20");
        assert!(is_encrypted(&bytes, 4096, &[]));
        bytes[20] = 0;
        assert!(!is_encrypted(&bytes, 4096, &[]), "no room for a seal");
    }

    #[test]
    fn an_overwritten_header_does_not_make_it_ciphertext() {
        let mut page = vec![0; 4096];
        page[100] = 13;
        page[3000..4000]
            .copy_from_slice(&b"CREATE TABLE t(a INTEGER PRIMARY KEY, b) ".repeat(25)[..1000]);
        page[..100].copy_from_slice(&noise(100));
        assert!(!is_encrypted(&page, 4096, &[]));
        // Complete TLS records over the start.
        page[..2000].copy_from_slice(&noise(2000));
        assert!(!is_encrypted(&page, 4096, &[]));
    }
}
