//! Bodies of requests to the host.

pub(crate) use fdguard_host::http::fuzz_body as run;
