//! Responses of services to health checks.

pub(crate) use fdguard_supervise::health::fuzz_response as run;
