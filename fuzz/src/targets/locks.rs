//! `/proc/locks`: one lock a line at most.

use fdguard_proc::locks::locks;

pub(crate) fn run(bytes: &[u8]) {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let found = locks(bytes);
    assert!(found.len() <= lines);
    assert!(
        found
            .iter()
            .all(|lock| lock.pid != Some(0) && !lock.kind.is_empty())
    );
}
