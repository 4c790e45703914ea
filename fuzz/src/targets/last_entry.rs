//! The last entry of an agent's log.

use fdguard_host::scope::daemon::{LastEntry, last_entry};

pub(crate) fn run(bytes: &[u8]) {
    let entry = last_entry(bytes);
    // A torn line that follows does not count.
    assert_eq!(last_entry(&[bytes, b"\n{"].concat()), entry);
    if !bytes.contains(&b'{') {
        assert_eq!(entry, LastEntry::Other);
    }
}
