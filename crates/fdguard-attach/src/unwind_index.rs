//! The index of unwind tables (`.eh_frame_hdr`), checked before the unwinder searches it: gimli
//! 0.33 subtracts the address of the table from that of an entry, which overflows in a damaged
//! file.

const HEADER: usize = 12;
/// Every linker for x86-64 writes this: version 1, the table's address in four bytes relative to
/// its place, the count in four bytes, entries in four bytes relative to the index.
const USUAL: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// Whether the unwinder can search this index, which begins at address `at`. Without an index it
/// makes one from the table.
#[must_use]
pub fn is_usable_index(index: &[u8], at: u64) -> bool {
    let Some((header, rows)) = index.split_first_chunk::<HEADER>() else {
        return false;
    };
    let [a, b, c, d, t0, t1, t2, t3, ..] = *header;
    let relative = |word: [u8; 4]| i64::from(i32::from_le_bytes(word));
    let table = at
        .wrapping_add(4)
        .wrapping_add_signed(relative([t0, t1, t2, t3]));
    let (rows, _rest) = rows.as_chunks::<8>();
    [a, b, c, d] == USUAL
        && rows.iter().all(|[_, _, _, _, e0, e1, e2, e3]| {
            at.wrapping_add_signed(relative([*e0, *e1, *e2, *e3])) >= table
        })
}

#[cfg(test)]
mod tests {
    use super::is_usable_index;

    const AT: u64 = 0x1000;

    /// An index whose table begins 64 bytes behind it, with one entry for each of these distances.
    fn index(entries: &[i32]) -> Vec<u8> {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        bytes.extend(60_i32.to_le_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
        for entry in entries {
            bytes.extend((-16_i32).to_le_bytes());
            bytes.extend(entry.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn an_index_whose_entries_are_in_its_table_is_usable() {
        assert!(is_usable_index(&index(&[64, 96]), AT));
        assert!(is_usable_index(&index(&[]), AT));
    }

    #[test]
    fn an_entry_before_the_table_is_damage() {
        assert!(!is_usable_index(&index(&[64, 63]), AT));
        assert!(!is_usable_index(&index(&[-0x1000]), AT));
        // An address below zero is far behind the table: the unwinder finds nothing there.
        assert!(is_usable_index(&index(&[-0x1001]), AT));
    }

    #[test]
    fn other_encodings_and_half_a_header_are_not_searched() {
        let mut other = index(&[64]);
        other[3] = 0x3c;
        assert!(!is_usable_index(&other, AT));
        assert!(!is_usable_index(&index(&[64])[..11], AT));
    }
}
