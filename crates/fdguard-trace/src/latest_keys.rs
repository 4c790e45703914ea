//! Which program of a process is its latest: each exec begins a new recording.

use std::collections::HashMap;

use fdguard_core::TraceKey;

/// The latest program of each process.
#[derive(Debug)]
pub(crate) struct LatestKeys {
    began: HashMap<u32, u64>,
}

impl LatestKeys {
    pub(crate) fn new(keys: impl Iterator<Item = TraceKey>) -> Self {
        let mut began = HashMap::new();
        for key in keys {
            let latest = began.entry(key.pid).or_insert(key.began);
            *latest = key.began.max(*latest);
        }
        Self { began }
    }

    pub(crate) fn contains(&self, key: TraceKey) -> bool {
        self.began.get(&key.pid) == Some(&key.began)
    }
}

#[cfg(test)]
mod tests {
    use super::LatestKeys;
    use fdguard_core::TraceKey;

    #[test]
    fn one_program_of_each_process_is_the_latest() {
        let key = |pid, began| TraceKey { pid, began };
        let keys = [key(1, 30), key(1, 20), key(2, 10)];
        let latest = LatestKeys::new(keys.into_iter());
        let found = keys.map(|key| latest.contains(key));
        assert_eq!(found, [true, false, true]);
        assert!(!latest.contains(key(3, 10)));
    }
}
