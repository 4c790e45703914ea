//! What the readers of HTTP requests and responses share.

use httparse::{EMPTY_HEADER, Header};

/// Room for every field of a head: each has a line of its own, and so has the start of the head.
pub(crate) fn room(head: &[u8]) -> Vec<Header<'_>> {
    let lines = head.iter().filter(|byte| **byte == b'\n').count();
    vec![EMPTY_HEADER; lines]
}
