//! `/proc/PID/auxv`: sixteen bytes an entry.

use fdguard_proc::auxv::{BASE, ENTRY, value};

pub(crate) fn run(bytes: &[u8]) {
    for key in [BASE, ENTRY] {
        let Some(found) = value(bytes, key) else {
            continue;
        };
        let entry = [key.to_le_bytes(), found.to_le_bytes()].concat();
        assert!(bytes.chunks(16).any(|part| part == entry));
    }
}
