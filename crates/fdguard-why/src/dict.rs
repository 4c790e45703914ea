//! Dicts: their entries, and which key has a value.

use crate::layout::{DICT_KEYS, DICT_USED, DICT_VALUES};
use crate::memory::Reader;

/// The most entries that are read.
const MOST: u64 = 1 << 22;
/// Entries that are read at once.
const CHUNK: u64 = 1024;

/// Where the entries of a table of keys are.
struct Keys {
    first: u64,
    /// Bytes of an entry, and where its key is.
    size: u64,
    key: u64,
    count: u64,
}

/// How many entries a dict has.
pub(crate) fn length(reader: &Reader<'_>, dict: u64) -> Option<u64> {
    reader.field(dict, DICT_USED)
}

impl Keys {
    fn read(reader: &Reader<'_>, keys: u64) -> Option<Self> {
        let (indices, at, count, size, key) = if reader.at.minor() < 11 {
            let size = reader.field(keys, 8)?;
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                0x1_0000..=0xffff_ffff => 4,
                _ => 8,
            };
            (size.checked_mul(width)?, 40, reader.field(keys, 32)?, 24, 8)
        } else {
            let log2 = reader.byte(keys, 9)?;
            let indices = 1_u64.checked_shl(log2.into())?;
            // General tables keep the hash, too.
            let (size, key) = match reader.byte(keys, 10)? {
                0 => (24, 8),
                _ => (16, 0),
            };
            (indices, 32, reader.field(keys, 24)?, size, key)
        };
        (indices <= MOST * 16 && count <= MOST).then_some(Self {
            first: keys.checked_add(at)?.checked_add(indices)?,
            size,
            key,
            count,
        })
    }

    /// Passes keys and values on until `take` has enough.
    fn each(&self, reader: &Reader<'_>, mut take: impl FnMut(u64, u64, u64) -> bool) -> Option<()> {
        let mut done = 0;
        while done < self.count {
            let count = (self.count - done).min(CHUNK);
            let start = self.first.checked_add(done.checked_mul(self.size)?)?;
            let words = usize::try_from(count * self.size / 8).ok()?;
            let words = reader.words(start, words)?;
            let (entry, key) = (
                usize::try_from(self.size / 8).ok()?,
                usize::try_from(self.key / 8).ok()?,
            );
            for (index, entry) in (done..).zip(words.chunks_exact(entry)) {
                let pair = entry.get(key).zip(entry.get(key + 1));
                let (key, value) = pair.map_or((0, 0), |(key, value)| (*key, *value));
                if take(index, key, value) {
                    return Some(());
                }
            }
            done += count;
        }
        Some(())
    }
}

/// Passes the keys and values of a dict on until `take` has enough.
fn each(reader: &Reader<'_>, dict: u64, mut take: impl FnMut(u64, u64) -> bool) -> Option<()> {
    let keys = Keys::read(reader, reader.pointer(dict, DICT_KEYS)?)?;
    let values = reader.field(dict, DICT_VALUES)?;
    if values == 0 {
        return keys.each(reader, |_, key, value| {
            key != 0 && value != 0 && take(key, value)
        });
    }
    split(reader, &keys, values, &mut take)
}

/// The values apart from the keys.
fn split(
    reader: &Reader<'_>,
    keys: &Keys,
    values: u64,
    take: &mut dyn FnMut(u64, u64) -> bool,
) -> Option<()> {
    let first = values.checked_add(reader.at.values)?;
    keys.each(reader, |index, key, _| {
        let value = reader.field(first, index * 8).unwrap_or(0);
        key != 0 && value != 0 && take(key, value)
    })
}

/// The value of a key that is a string.
pub(crate) fn get(reader: &Reader<'_>, dict: u64, name: &str) -> Option<u64> {
    let mut found = None;
    each(reader, dict, |key, value| {
        let is_it = reader.text(key).as_deref() == Some(name);
        if is_it {
            found = Some(value);
        }
        is_it
    })?;
    found
}

/// The key of a value.
pub(crate) fn key_of(reader: &Reader<'_>, dict: u64, wanted: u64) -> Option<u64> {
    let mut found = None;
    each(reader, dict, |key, value| {
        if value == wanted {
            found = Some(key);
        }
        value == wanted
    })?;
    found
}

/// The name of a value in the table of values of an object: the keys are its type's.
pub(crate) fn key_of_value(
    reader: &Reader<'_>,
    keys: u64,
    values: u64,
    wanted: u64,
) -> Option<u64> {
    let keys = Keys::read(reader, keys)?;
    let mut found = None;
    split(reader, &keys, values, &mut |key, value| {
        if value == wanted {
            found = Some(key);
        }
        value == wanted
    })?;
    found
}

/// The value of a name in such a table.
pub(crate) fn value_of(reader: &Reader<'_>, keys: u64, values: u64, name: &str) -> Option<u64> {
    let keys = Keys::read(reader, keys)?;
    let mut found = None;
    split(reader, &keys, values, &mut |key, value| {
        let is_it = reader.text(key).as_deref() == Some(name);
        if is_it {
            found = Some(value);
        }
        is_it
    })?;
    found
}

/// The most attributes of an object that are listed.
const MOST_PAIRS: usize = 1024;

/// The keys and values of a small dict.
pub(crate) fn pairs(reader: &Reader<'_>, dict: u64) -> Vec<(u64, u64)> {
    let mut pairs = Vec::new();
    let _all = each(reader, dict, |key, value| {
        pairs.push((key, value));
        pairs.len() >= MOST_PAIRS
    });
    pairs
}

/// The same of a table of values.
pub(crate) fn value_pairs(reader: &Reader<'_>, keys: u64, values: u64) -> Vec<(u64, u64)> {
    let mut pairs = Vec::new();
    if let Some(keys) = Keys::read(reader, keys) {
        let _all = split(reader, &keys, values, &mut |key, value| {
            pairs.push((key, value));
            pairs.len() >= MOST_PAIRS
        });
    }
    pairs
}
