//! The entry for the fuzz target to the records of a walk.

use super::entry::read_entry;
use super::record::Record;
use super::socket::describe;

/// Reads any records one after the other, each as a descriptor and as a socket.
pub fn fuzz_walk(bytes: &[u8]) {
    let (mut rest, mut text) = (bytes, Vec::new());
    while let Some((record, after)) = Record::take(rest) {
        assert!(after.len() < rest.len());
        let _entry = read_entry(&record, &mut text);
        let _socket = describe(&record);
        rest = after;
    }
}
