//! What Node's inspector answers: HTTP, and frames of a WebSocket.

pub(crate) use fdguard_trace::fuzz_inspector as run;
