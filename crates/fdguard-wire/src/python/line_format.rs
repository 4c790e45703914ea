//! From an instruction to its line, by CPython's three table formats. Pure code, a forward scan.
//!
//! The hook reads the table piece by piece; the kernel tracer fetches it from another process.

/// The format in which a code object maps instructions to lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineFormat {
    /// 3.9, `co_lnotab`: pairs of an address step and a signed line step.
    Lnotab,
    /// 3.10, `co_linetable`: pairs of a range's length and a signed line step, -128 for no line.
    Ranges,
    /// From 3.11 on, `co_linetable`: entries of several bytes, columns included.
    Locations,
}

impl LineFormat {
    /// The format of `3.minor`.
    #[inline]
    #[must_use]
    pub const fn of(minor: u16) -> Self {
        match minor {
            0..=9 => Self::Lnotab,
            10 => Self::Ranges,
            _ => Self::Locations,
        }
    }

    /// The line of the instruction that begins `offset` bytes into the code; a negative offset
    /// means that the function has not begun. Instructions that the compiler added have no line.
    #[inline]
    #[must_use]
    pub fn line_at(
        self,
        table: impl Iterator<Item = u8>,
        first_line: u32,
        offset: i32,
    ) -> Option<u32> {
        if offset < 0 {
            return Some(first_line);
        }
        let (first_line, offset) = (i64::from(first_line), i64::from(offset));
        let line = match self {
            Self::Lnotab => by_lnotab(table, first_line, offset),
            Self::Ranges => by_ranges(table, first_line, offset),
            Self::Locations => by_locations(table, first_line, offset),
        }?;
        u32::try_from(line).ok()
    }
}

fn by_lnotab(mut table: impl Iterator<Item = u8>, first_line: i64, offset: i64) -> Option<i64> {
    let (mut line, mut address) = (first_line, 0_i64);
    while let (Some(step), Some(lines)) = (table.next(), table.next()) {
        address = address.checked_add(i64::from(step))?;
        if address > offset {
            break;
        }
        line = line.checked_add(i64::from(lines.cast_signed()))?;
    }
    Some(line)
}

fn by_ranges(mut table: impl Iterator<Item = u8>, first_line: i64, offset: i64) -> Option<i64> {
    let (mut line, mut end) = (first_line, 0_i64);
    while let (Some(length), Some(lines)) = (table.next(), table.next()) {
        end = end.checked_add(i64::from(length))?;
        let here = match lines.cast_signed() {
            i8::MIN => None,
            lines => {
                line = line.checked_add(i64::from(lines))?;
                Some(line)
            }
        };
        if offset < end {
            return here;
        }
    }
    None
}

fn by_locations(mut table: impl Iterator<Item = u8>, first_line: i64, offset: i64) -> Option<i64> {
    let (mut line, mut end) = (first_line, 0_i64);
    let mut next = table.next();
    while let Some(head) = next {
        // Only the first byte of an entry has its highest bit set.
        if head & 0x80 == 0 {
            return None;
        }
        end = end.checked_add((i64::from(head & 7) + 1) * 2)?;
        let kind = (head >> 3) & 15;
        let step = match kind {
            10..=12 => i64::from(kind) - 10,
            13 | 14 => signed_varint(&mut table)?,
            _ => 0,
        };
        line = line.checked_add(step)?;
        if offset < end {
            return (kind != 15).then_some(line);
        }
        next = table.find(|byte| byte & 0x80 != 0);
    }
    None
}

/// Six bits per byte, lowest first; the lowest bit of the number is its sign.
fn signed_varint(table: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let mut number = 0_i64;
    for shift in (0..=36).step_by(6) {
        let byte = table.next()?;
        number |= i64::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            let size = number >> 1;
            return Some(if number & 1 == 1 { -size } else { size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_has_not_begun_is_at_its_first_line() {
        for minor in 9..14 {
            assert_eq!(
                LineFormat::of(minor).line_at([].into_iter(), 7, -1),
                Some(7)
            );
        }
    }

    #[test]
    fn lnotab_counts_lines_up_to_the_instruction() {
        let table = [0, 1, 4, 1, 2, 0xff, 6, 3];
        for (offset, line) in [
            (0, 11),
            (3, 11),
            (4, 12),
            (6, 11),
            (11, 11),
            (12, 14),
            (99, 14),
        ] {
            let found = LineFormat::Lnotab.line_at(table.into_iter(), 10, offset);
            assert_eq!(found, Some(line), "{offset}");
        }
    }

    #[test]
    fn a_range_may_be_without_a_line() {
        let table = [4, 1, 2, 0x80, 2, 0xfe];
        for (offset, line) in [
            (0, Some(11)),
            (2, Some(11)),
            (4, None),
            (6, Some(9)),
            (8, None),
        ] {
            assert_eq!(
                LineFormat::Ranges.line_at(table.into_iter(), 10, offset),
                line
            );
        }
    }

    #[test]
    fn locations_of_every_kind() {
        // Short, one line further, without columns 64 lines further, long and back, none.
        let table = [
            0x80, 0x11, 0xd8, 1, 2, 0xe9, 0x40, 2, 0xf0, 3, 0, 1, 2, 0xf8,
        ];
        let lines = [Some(10), Some(11), Some(75), Some(75), Some(74), None, None];
        for (index, line) in (0..).zip(lines) {
            let found = LineFormat::Locations.line_at(table.into_iter(), 10, index * 2);
            assert_eq!(found, line, "{index}");
        }
    }

    #[test]
    fn any_bytes_have_an_end_and_no_panic() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 33
        };
        for _ in 0..20_000 {
            let length = random() % 40;
            let table: std::vec::Vec<u8> = (0..length).map(|_| random().to_le_bytes()[0]).collect();
            let offset = i32::try_from(random() % 300).unwrap_or(0);
            for minor in 9..14 {
                let first = u32::try_from(random()).unwrap_or(0);
                let _line = LineFormat::of(minor).line_at(table.iter().copied(), first, offset);
            }
        }
    }
}
