//! Journals of scopes, which the next host reads.

pub(crate) use fdguard_host::scope::fuzz_journal as run;
