//! The version of an interpreter, and whether its frames can be read.

use super::offsets::PythonOffsets;

/// Why an interpreter is not walked. The numbers are part of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PythonRefusal {
    /// There is no interpreter (yet: a library may be loaded later).
    NoPython = 1,
    /// `PyPy` has other frames.
    PyPy = 2,
    /// 3.8 or older, or Python 2.
    TooOld = 3,
    /// Newer than the table.
    TooNew = 4,
    /// An alpha or beta: their layouts change.
    Unreleased = 5,
    /// Built without the GIL.
    FreeThreaded = 6,
    /// A symbol that every build has is missing.
    SymbolMissing = 7,
    /// What the running interpreter reports about itself differs from the table's row for its
    /// version.
    LayoutDiffers = 8,
    /// Not 64-bit little-endian, or the kernel cannot be asked whether memory is readable.
    Machine = 9,
    /// Its C library is not glibc, so its threads cannot be found from outside.
    OtherLibrary = 10,
}

/// From a text such as `3.9.18 (main, …` or `3.10.0b1+ (…`. Encoded like `Py_Version`:
/// `0x030b07f0` is 3.11.7.
#[inline]
#[must_use]
pub fn parse_version(text: &[u8]) -> Option<u32> {
    let text = text.split(|byte| *byte == b' ').next()?;
    let mut parts = text.splitn(3, |byte| *byte == b'.');
    let mut version = [0_u8; 3];
    let mut level = 0xf0;
    for (index, number) in version.iter_mut().enumerate() {
        let part = parts.next()?;
        let digits = part.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = part.split_at_checked(digits)?;
        if digits.is_empty() || (index < 2 && !rest.is_empty()) {
            return None;
        }
        for digit in digits {
            *number = number
                .checked_mul(10)?
                .checked_add(digit.wrapping_sub(b'0'))?;
        }
        level = match rest.first() {
            Some(b'a') => 0xa0,
            Some(b'b') => 0xb0,
            Some(b'r' | b'c') => 0xc0,
            _ => 0xf0,
        };
    }
    let [major, minor, micro] = version;
    Some(u32::from_be_bytes([major, minor, micro, level]))
}

impl PythonOffsets {
    /// The table's row for a version, encoded like `Py_Version`.
    #[inline]
    pub fn of_version(version: u32) -> Result<Self, PythonRefusal> {
        let [major, minor, _, level] = version.to_be_bytes();
        if major < 3 || (major == 3 && minor < 9) {
            return Err(PythonRefusal::TooOld);
        }
        let row = Self::of(u16::from(minor)).filter(|_| major == 3);
        let row = row.ok_or(PythonRefusal::TooNew)?;
        // Release candidates have the layout of the release.
        if level < 0xc0 {
            return Err(PythonRefusal::Unreleased);
        }
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::{PythonOffsets, PythonRefusal, parse_version};

    #[test]
    fn versions_are_read_from_what_python_prints() {
        for (text, version) in [
            (
                "3.9.18 (main, Nov  1 2023, 00:00:00) \n[GCC 12.2.0]",
                Some(0x0309_12f0),
            ),
            ("3.10.0b1+ (heads/3.10:1234567, …)", Some(0x030a_00b0)),
            ("3.10.0rc2 (default)", Some(0x030a_00c0)),
            ("3.11.0a7", Some(0x030b_00a0)),
            ("2.7.18 (default)", Some(0x0207_12f0)),
            ("3.9.18+ (main)", Some(0x0309_12f0)),
            ("3.9", None),
            ("3.9b.1", None),
            ("3..1", None),
            ("3.9.300", None),
            ("", None),
            ("banana", None),
        ] {
            assert_eq!(parse_version(text.as_bytes()), version, "{text}");
        }
    }

    #[test]
    fn only_released_versions_of_the_table_are_walked() {
        for minor in 9..=13_u8 {
            for (micro, level) in [(0, 0xf0), (99, 0xf0), (0, 0xc1)] {
                let version = u32::from_be_bytes([3, minor, micro, level]);
                let row = PythonOffsets::of_version(version).expect("a version of the table");
                assert_eq!(row.minor, u16::from(minor));
            }
            let alpha = u32::from_be_bytes([3, minor, 0, 0xa7]);
            assert_eq!(
                PythonOffsets::of_version(alpha),
                Err(PythonRefusal::Unreleased)
            );
        }
        for (version, refusal) in [
            (0x0308_12f0, PythonRefusal::TooOld),
            (0x0207_12f0, PythonRefusal::TooOld),
            (0x030e_00f0, PythonRefusal::TooNew),
            (0x040b_00f0, PythonRefusal::TooNew),
        ] {
            assert_eq!(PythonOffsets::of_version(version), Err(refusal));
        }
    }
}
