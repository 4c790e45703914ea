#![no_main]
//! What Node's inspector answers: HTTP, and frames of a WebSocket.

use fdguard_trace::parse_inspector_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for length in parse_inspector_bytes(bytes).into_iter().flatten() {
        assert!(length <= bytes.len());
        // What is whole is the same without what follows it.
        let whole = bytes.get(..length).unwrap_or_default();
        assert!(parse_inspector_bytes(whole).contains(&Some(length)));
    }
});
