//! Bytes of a module's tables, never read beyond the module.

#![expect(unsafe_code, reason = "reads a loaded module's tables by address")]

/// A place in a module, and where the module ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) at: usize,
    end: usize,
}

impl Bytes {
    /// From `at` up to `end`; the caller knows from the loader that this is mapped.
    pub(crate) fn new(at: usize, end: usize) -> Self {
        Self { at, end }
    }

    pub(crate) fn left(&self) -> usize {
        self.end.saturating_sub(self.at)
    }

    /// The next `bytes` bytes as a piece of their own.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Self> {
        if bytes > self.left() {
            return None;
        }
        let piece = Self {
            at: self.at,
            end: self.at + bytes,
        };
        self.at += bytes;
        Some(piece)
    }

    /// The next `N` bytes.
    fn read<const N: usize>(&mut self) -> Option<[u8; N]> {
        if self.left() < N {
            return None;
        }
        // SAFETY: the bytes are in a module that stays loaded while its code is on the stack, and
        // the caller of `new` passed its end.
        let bytes = unsafe { (self.at as *const [u8; N]).read_unaligned() };
        self.at += N;
        Some(bytes)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.read::<1>().map(|[byte]| byte)
    }

    pub(crate) fn i8(&mut self) -> Option<i8> {
        self.read().map(i8::from_ne_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.read().map(u16::from_ne_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.read().map(i16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.read().map(u32::from_ne_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.read().map(i32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.read().map(u64::from_ne_bytes)
    }

    /// An unsigned number in groups of seven bits.
    pub(crate) fn uleb(&mut self) -> Option<u64> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    }

    /// A signed one.
    pub(crate) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0_i64;
        let mut shift = 0;
        loop {
            let byte = self.u8()?;
            if shift < 64 {
                value |= i64::from(byte & 0x7f) << shift;
            }
            shift += 7;
            if byte & 0x80 == 0 {
                let is_negative = byte & 0x40 != 0 && shift < 64;
                return Some(if is_negative {
                    value | -1 << shift
                } else {
                    value
                });
            }
        }
    }

    /// An address in one of the encodings of `.eh_frame`; `data` is the base of data-relative ones.
    pub(crate) fn pointer(&mut self, encoding: u8, data: usize) -> Option<usize> {
        const OMITTED: u8 = 0xff;
        if encoding == OMITTED {
            return None;
        }
        let place = self.at;
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()? as i64,
            0x01 => self.uleb()? as i64,
            0x02 => i64::from(self.u16()?),
            0x03 => i64::from(self.u32()?),
            0x09 => self.sleb()?,
            0x0a => i64::from(self.i16()?),
            0x0b => i64::from(self.i32()?),
            _ => return None,
        };
        let base = match encoding & 0x70 {
            0x00 => 0,
            0x10 => place,
            0x30 => data,
            _ => return None,
        };
        Some(base.wrapping_add_signed(value as isize))
    }
}
