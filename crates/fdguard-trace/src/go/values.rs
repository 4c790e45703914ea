//! Values that depend on the program counter: the line, the file, the inlined call. The compiler
//! stores each as a list of differences.

/// The value at this many bytes after the entry of a function; `quantum` is the smallest size of an
/// instruction. `None` if the table does not reach that far or is damaged.
pub(super) fn value_at(table: &[u8], target: u64, quantum: u64) -> Option<i32> {
    let mut bytes = table.iter().copied();
    let mut pc = 0_u64;
    let mut value = -1_i32;
    let mut is_first = true;
    loop {
        let difference = varint(&mut bytes)?;
        if difference == 0 && !is_first {
            return None;
        }
        is_first = false;
        let magnitude = (difference >> 1).cast_signed();
        let change = if difference & 1 == 0 {
            magnitude
        } else {
            !magnitude
        };
        value = value.wrapping_add(change);
        let step = varint(&mut bytes)?;
        pc = pc.checked_add(u64::from(step).checked_mul(quantum)?)?;
        if target < pc {
            return Some(value);
        }
    }
}

fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0_u32;
    for shift in (0..35).step_by(7) {
        let byte = bytes.next()?;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::value_at;

    #[test]
    fn a_value_holds_until_the_next_difference() {
        // Line 10 for 4 bytes, line 12 for 300 bytes, line 11 for 1 byte.
        let table = [22, 4, 4, 0xac, 0x02, 1, 1, 0];
        assert_eq!(value_at(&table, 0, 1), Some(10));
        assert_eq!(value_at(&table, 3, 1), Some(10));
        assert_eq!(value_at(&table, 4, 1), Some(12));
        assert_eq!(value_at(&table, 303, 1), Some(12));
        assert_eq!(value_at(&table, 304, 1), Some(11));
        assert_eq!(value_at(&table, 305, 1), None);
        assert_eq!(value_at(&table, 15, 4), Some(10));
    }

    #[test]
    fn a_damaged_table_has_no_value() {
        assert_eq!(value_at(&[], 0, 1), None);
        assert_eq!(value_at(&[22], 0, 1), None);
        assert_eq!(value_at(&[22, 0x80, 0x80, 0x80, 0x80, 0x80], 0, 1), None);
    }
}
