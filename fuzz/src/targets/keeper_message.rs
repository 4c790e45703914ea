//! Messages between a keeper and its owner.

pub(crate) use fdguard_process::fuzz_keeper_message as run;
