//! The output of services, line by line.

pub(crate) use fdguard_supervise::output::fuzz_output as run;
