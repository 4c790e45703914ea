//! Server-sent events: in pieces they are the same.

use fdguard_host::call::sse::SseReader;

pub(crate) fn run(bytes: &[u8]) {
    let mut whole = SseReader::with_longest(4096);
    let mut pieces = SseReader::with_longest(4096);
    let whole = whole.feed(bytes);
    let found: Result<Vec<_>, _> = bytes.chunks(7).map(|piece| pieces.feed(piece)).collect();
    assert_eq!(found.map(|found| found.concat()), whole);
}
