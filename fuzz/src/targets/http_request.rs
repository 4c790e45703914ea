//! Heads of requests to the metrics port of `run`.

pub(crate) use fdguard_supervise::metrics::fuzz_request as run;
