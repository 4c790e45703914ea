//! What the programs of sessions send to the host.

pub(crate) use fdguard_host::session::fuzz_message as run;
