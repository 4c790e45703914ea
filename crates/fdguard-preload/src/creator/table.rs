//! Creators by the address of what they created: fixed size, lock-free, oldest entries overwritten.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Creator;

const WAYS: usize = 4;
const SETS: usize = 1 << 12;
/// Bits of a value that tie it to its key: two threads may write one entry at once.
const CHECK_SHIFT: u32 = 40;

struct Entry {
    /// 0 if free.
    key: AtomicU64,
    /// The stack in the lowest 32 bits, its depth in the next 8, then the check.
    value: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            value: AtomicU64::new(0),
        }
    }
}

/// The table. Only pages that were written to take memory.
pub(super) struct Table {
    sets: [[Entry; WAYS]; SETS],
    /// Which way of a full set is replaced next.
    next: AtomicU32,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self {
            sets: [const { [const { Entry::new() }; WAYS] }; SETS],
            next: AtomicU32::new(0),
        }
    }

    /// Remembers the creator of what is at this address and replaces what was known of it. The same
    /// `mark` finds it again.
    pub(super) fn insert(&self, key: u64, mark: u64, creator: Creator) {
        let set = self.set(key);
        let is_at = |entry: &&Entry, wanted: u64| entry.key.load(Ordering::Relaxed) == wanted;
        let known = set.iter().find(|entry| is_at(entry, key));
        let free = || set.iter().find(|entry| is_at(entry, 0));
        let oldest = || {
            let turn = self.next.fetch_add(1, Ordering::Relaxed) as usize;
            set.get(turn % WAYS)
        };
        if let Some(entry) = known.or_else(free).or_else(oldest) {
            let value = u64::from(creator.stack) | u64::from(creator.depth) << 32;
            entry.key.store(key, Ordering::Relaxed);
            entry
                .value
                .store(value | check(key, mark), Ordering::Release);
        }
    }

    pub(super) fn find(&self, key: u64, mark: u64) -> Option<Creator> {
        let mut entries = self.set(key).iter();
        let entry = entries.find(|entry| entry.key.load(Ordering::Relaxed) == key)?;
        let value = entry.value.load(Ordering::Acquire);
        if value >> CHECK_SHIFT << CHECK_SHIFT != check(key, mark) {
            return None;
        }
        let [_, _, _, _, depth, ..] = value.to_le_bytes();
        let stack = u32::try_from(value & 0xffff_ffff).ok()?;
        (key != 0 && stack != 0).then_some(Creator { stack, depth })
    }

    pub(super) fn remove(&self, key: u64) {
        for entry in self.set(key) {
            if entry.key.load(Ordering::Relaxed) == key {
                entry.value.store(0, Ordering::Release);
            }
        }
    }

    fn set(&self, key: u64) -> &[Entry] {
        let place = usize::try_from(mix(key) >> 32).unwrap_or(0) % SETS;
        self.sets.get(place).map_or(&[], <[Entry; WAYS]>::as_slice)
    }
}

/// Never 0, so that a removed entry matches no key.
fn check(key: u64, mark: u64) -> u64 {
    (mix(key ^ mix(mark)) | 1 << CHECK_SHIFT) >> CHECK_SHIFT << CHECK_SHIFT
}

fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use super::{Creator, SETS, Table, WAYS};

    fn creator(stack: u32) -> Creator {
        Creator { stack, depth: 2 }
    }

    #[test]
    fn what_was_created_is_found_by_its_address_and_its_mark() {
        static TABLE: Table = Table::new();
        TABLE.insert(0x7f00_1000, 7, creator(41));
        TABLE.insert(0x7f00_2000, 8, creator(u32::MAX));
        assert_eq!(TABLE.find(0x7f00_1000, 7), Some(creator(41)));
        assert_eq!(TABLE.find(0x7f00_2000, 8), Some(creator(u32::MAX)));
        assert_eq!(TABLE.find(0x7f00_3000, 7), None);
        assert_eq!(TABLE.find(0, 0), None);
    }

    #[test]
    fn another_use_of_an_address_has_no_creator_until_it_is_given_one() {
        static TABLE: Table = Table::new();
        TABLE.insert(0x7f00_1000, 7, creator(41));
        assert_eq!(TABLE.find(0x7f00_1000, 9), None);
        TABLE.insert(0x7f00_1000, 9, creator(42));
        assert_eq!(TABLE.find(0x7f00_1000, 9), Some(creator(42)));
        assert_eq!(TABLE.find(0x7f00_1000, 7), None);
        TABLE.remove(0x7f00_1000);
        assert_eq!(TABLE.find(0x7f00_1000, 9), None);
    }

    #[test]
    fn a_full_table_forgets_and_keeps_what_came_last() {
        static TABLE: Table = Table::new();
        let many = u32::try_from(SETS * WAYS * 3).unwrap();
        for number in 1..=many {
            TABLE.insert(u64::from(number) * 16, 1, creator(number));
        }
        let found = |number: u32| TABLE.find(u64::from(number) * 16, 1);
        assert_eq!(found(many), Some(creator(many)));
        let mut known = 0;
        for number in 1..=many {
            if let Some(one) = found(number) {
                assert_eq!(one, creator(number), "never another's");
                known += 1;
            }
        }
        assert!(known > SETS * WAYS / 2, "{known}");
    }
}
