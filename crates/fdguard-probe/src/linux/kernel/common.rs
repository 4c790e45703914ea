//! What processes have in common, so that it is read once and not for each of them.

use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

/// Values by a key. Between the record of a process, which has the key, and the read of the value
/// the process may have changed: a value is believed once two processes agree on it.
#[derive(Debug)]
pub(super) struct CommonValues<K, V>(Mutex<FxHashMap<K, Claim<V>>>);

#[derive(Debug)]
enum Claim<V> {
    Once(V),
    Agreed(V),
    /// Each process must be read.
    Disputed,
}

impl<K, V> Default for CommonValues<K, V> {
    fn default() -> Self {
        Self(Mutex::new(FxHashMap::default()))
    }
}

impl<K: Eq + Hash, V: Clone + PartialEq> CommonValues<K, V> {
    /// The value for this key, which `read` reads for one process.
    pub(super) fn get(&self, key: K, read: impl FnOnce() -> V) -> V {
        if let Some(Claim::Agreed(value)) = self.lock().get(&key) {
            return value.clone();
        }
        let value = read();
        match self.lock().entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Claim::Once(value.clone()));
            }
            Entry::Occupied(mut entry) => {
                let agrees = match entry.get() {
                    Claim::Once(known) | Claim::Agreed(known) => *known == value,
                    Claim::Disputed => false,
                };
                entry.insert(if agrees {
                    Claim::Agreed(value.clone())
                } else {
                    Claim::Disputed
                });
            }
        }
        value
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FxHashMap<K, Claim<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::CommonValues;

    #[test]
    fn a_value_is_read_until_two_agree() {
        let values = CommonValues::default();
        let reads = Cell::new(0);
        let get = |answer: &'static str| {
            values.get(7, || {
                reads.set(reads.get() + 1);
                answer
            })
        };
        assert_eq!(
            (get("a"), get("a"), get("b"), get("b")),
            ("a", "a", "a", "a")
        );
        assert_eq!(reads.get(), 2);
    }

    #[test]
    fn after_a_dispute_everyone_is_read() {
        let values = CommonValues::default();
        let get = |answer: &'static str| values.get(7, || answer);
        assert_eq!(
            (get("b"), get("a"), get("a"), get("a")),
            ("b", "a", "a", "a")
        );
        assert_eq!((get("b"), get("c")), ("b", "c"));
    }
}
