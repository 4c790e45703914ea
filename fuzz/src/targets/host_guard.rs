//! The names and the token in the head of a request to the host.

pub(crate) use fdguard_host::http::fuzz_guard as run;
