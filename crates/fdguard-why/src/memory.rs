//! Memory of the copy, read by address. Any word of it may be anything.

use std::cell::RefCell;

use fdguard_wire::python::encode_character;
use rustc_hash::FxHashMap;

use crate::layout::Layout;

/// The memory of a process that does not change.
pub trait Memory {
    /// Reads all of the bytes at an address; false if they cannot be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

const PAGE: usize = 4096;
/// Pages that are kept.
const MOST_PAGES: usize = 1 << 15;
/// The longest string that is a name.
const MOST_TEXT: u64 = 4096;

type Page = [u8; PAGE];

/// Memory with the pages that were read, and with the interpreter's layout.
pub struct Reader<'m> {
    memory: &'m dyn Memory,
    /// The layout.
    pub(crate) at: Layout,
    pages: RefCell<FxHashMap<u64, Option<Box<Page>>>>,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl<'m> Reader<'m> {
    /// Over this memory.
    #[must_use]
    pub fn new(memory: &'m dyn Memory, at: Layout) -> Self {
        Self {
            memory,
            at,
            pages: RefCell::default(),
        }
    }

    /// Reads bytes, through the pages.
    pub(crate) fn bytes(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let mut at = address;
        let mut rest = into;
        while !rest.is_empty() {
            let inside = usize::try_from(at % PAGE as u64).ok()?;
            let page = at - inside as u64;
            let length = rest.len().min(PAGE - inside);
            let (now, later) = rest.split_at_mut(length);
            self.with_page(page, |bytes| {
                now.copy_from_slice(bytes.get(inside..inside + length)?);
                Some(())
            })?;
            at = at.checked_add(length as u64)?;
            rest = later;
        }
        Some(())
    }

    fn with_page<T>(&self, page: u64, use_it: impl FnOnce(&Page) -> Option<T>) -> Option<T> {
        let mut pages = self.pages.borrow_mut();
        if pages.len() > MOST_PAGES {
            pages.clear();
        }
        let known = pages.entry(page).or_insert_with(|| {
            let mut bytes = Box::new([0; PAGE]);
            self.memory.read(page, &mut *bytes).then_some(bytes)
        });
        use_it(known.as_deref()?)
    }

    /// Reads many bytes, not through the pages.
    pub(crate) fn block(&self, address: u64, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.memory.read(address, &mut bytes).then_some(bytes)
    }

    /// Words in a row.
    pub(crate) fn words(&self, address: u64, count: usize) -> Option<Vec<u64>> {
        let bytes = self.block(address, count.checked_mul(8)?)?;
        let (words, _) = bytes.as_chunks::<8>();
        Some(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.bytes(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The word at an offset of an object.
    pub(crate) fn field(&self, object: u64, offset: u64) -> Option<u64> {
        self.word(object.checked_add(offset)?)
    }

    /// A pointer that is not null.
    pub(crate) fn pointer(&self, object: u64, offset: u64) -> Option<u64> {
        self.field(object, offset).filter(|pointer| *pointer != 0)
    }

    pub(crate) fn int(&self, object: u64, offset: u64) -> Option<i32> {
        let mut bytes = [0; 4];
        self.bytes(object.checked_add(offset)?, &mut bytes)?;
        Some(i32::from_le_bytes(bytes))
    }

    pub(crate) fn byte(&self, object: u64, offset: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.bytes(object.checked_add(offset)?, &mut bytes)?;
        Some(bytes[0])
    }

    /// The type of an object.
    pub(crate) fn kind(&self, object: u64) -> Option<u64> {
        self.pointer(object, 8)
    }

    /// A C string of at most 200 bytes.
    pub(crate) fn c_string(&self, address: u64) -> Option<String> {
        let mut text = Vec::new();
        for offset in 0..200 {
            match self.byte(address, offset)? {
                0 => return String::from_utf8(text).ok(),
                byte => text.push(byte),
            }
        }
        None
    }

    /// A string object.
    pub(crate) fn text(&self, object: u64) -> Option<String> {
        let at = &self.at.frames;
        let state = self.int(object, at.unicode_state.into())?.cast_unsigned();
        let has = |mask: u16| state & u32::from(mask) != 0;
        let width = (state & u32::from(at.state_kind)) >> at.state_kind.trailing_zeros();
        let width = usize::try_from(width).ok()?;
        if !has(at.state_is_compact) || ![1, 2, 4].contains(&width) {
            return None;
        }
        let start = match has(at.state_is_ascii) {
            true => at.unicode_ascii,
            false => at.unicode_compact,
        };
        let length = self.field(object, at.unicode_length.into())?;
        if length > MOST_TEXT {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length).ok()?.checked_mul(width)?];
        self.bytes(object.checked_add(start.into())?, &mut bytes)?;
        let mut text = Vec::with_capacity(bytes.len());
        for character in bytes.chunks_exact(width) {
            text.extend_from_slice(encode_character(character, &mut [0; 4]));
        }
        Some(String::from_utf8_lossy(&text).into_owned())
    }
}
