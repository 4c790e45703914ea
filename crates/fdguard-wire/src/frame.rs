//! A frame in one word.

use crate::mapping::low;

/// Bits of an offset in a module or of an address.
const OFFSET: u32 = 44;

/// A language with its own runtime; the number is the kind of its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RuntimeLanguage {
    /// Python.
    Python = 3,
    /// Java and other languages on the JVM.
    Java = 4,
    /// JavaScript in Node.
    Node = 5,
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameRecord {
    /// A location in a module's file, by the file's own addresses. A return address, unless
    /// `exact`.
    Native {
        /// The module.
        module: u16,
        /// The address minus the module's load bias.
        offset: u64,
    },
    /// A location outside every module: code generated at run time.
    Address(u64),
    /// A frame of a language with its own runtime.
    Language {
        /// The language.
        tongue: RuntimeLanguage,
        /// The text: file and function.
        text: u32,
        /// The line, 0 if unknown.
        line: u32,
    },
}

impl FrameRecord {
    /// Encodes the frame as a word.
    #[must_use]
    pub const fn pack(self) -> u64 {
        match self {
            Self::Native { module, offset } => {
                1 << 60 | (module as u64) << OFFSET | (offset & ((1 << OFFSET) - 1))
            }
            Self::Address(address) => 2 << 60 | (address & ((1 << 60) - 1)),
            Self::Language { tongue, text, line } => {
                let line = if line < 1 << 28 { line } else { 0 };
                (tongue as u64) << 60 | (line as u64) << 32 | text as u64
            }
        }
    }

    /// Decodes a word; `None` for a kind of a later version, or an empty word.
    #[must_use]
    pub const fn unpack(word: u64) -> Option<Self> {
        match word >> 60 {
            1 => Some(Self::Native {
                module: (word >> OFFSET & 0xffff) as u16,
                offset: word & ((1 << OFFSET) - 1),
            }),
            2 => Some(Self::Address(word & ((1 << 60) - 1))),
            3 => Some(Self::language(RuntimeLanguage::Python, word)),
            4 => Some(Self::language(RuntimeLanguage::Java, word)),
            5 => Some(Self::language(RuntimeLanguage::Node, word)),
            _ => None,
        }
    }

    const fn language(tongue: RuntimeLanguage, word: u64) -> Self {
        Self::Language {
            tongue,
            text: low(word),
            line: low(word >> 32) & 0x0fff_ffff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FrameRecord, RuntimeLanguage};

    #[test]
    fn every_kind_comes_back() {
        let frames = [
            FrameRecord::Native {
                module: 65_535,
                offset: 0xfff_ffff_ffff,
            },
            FrameRecord::Address(0x7fff_1234_5678),
            FrameRecord::Language {
                tongue: RuntimeLanguage::Python,
                text: u32::MAX,
                line: 123_456_789,
            },
            FrameRecord::Language {
                tongue: RuntimeLanguage::Node,
                text: 7,
                line: 0,
            },
        ];
        for frame in frames {
            assert_eq!(FrameRecord::unpack(frame.pack()), Some(frame));
        }
        assert_eq!(FrameRecord::unpack(0), None);
        assert_eq!(FrameRecord::unpack(u64::MAX), None);
    }
}
