//! `/proc/PID/cgroup`: a container id is a part of the input.

use fdguard_proc::cgroup::{container_id, unified};

pub(crate) fn run(bytes: &[u8]) {
    assert!(unified(bytes).is_none_or(|path| path.len() + 3 <= bytes.len()));
    if let Some(id) = container_id(bytes) {
        // In characters: what is not text becomes the longer replacement character.
        assert!(!id.is_empty() && id.chars().count() <= bytes.len());
    }
}
