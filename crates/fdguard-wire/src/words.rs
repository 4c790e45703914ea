//! Reads a record that is little-endian words of one size.

use core::slice::Iter;

/// The words of a record, one after the other; 0 beyond its end.
pub(crate) struct Words<'a, const N: usize>(Iter<'a, [u8; N]>);

impl<'a, const N: usize> Words<'a, N> {
    /// Those of these bytes. What does not make a whole word is left out.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self(bytes.as_chunks().0.iter())
    }

    fn bytes(&mut self) -> [u8; N] {
        self.0.next().copied().unwrap_or([0; N])
    }
}

impl Words<'_, 4> {
    /// The next one.
    pub(crate) fn read(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }
}

impl Words<'_, 8> {
    /// The next one.
    pub(crate) fn read(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn words_come_in_order_and_then_zeros() {
        let bytes = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0];
        let mut short = Words::<4>::of(&bytes);
        assert_eq!([short.read(), short.read(), short.read()], [1, 2, 0]);
        let mut long = Words::<8>::of(&bytes);
        assert_eq!([long.read(), long.read()], [0x2_0000_0001, 0]);
    }
}
