//! The last line of a log that its writer did not finish.

pub(crate) use fdguard_files::jsonl::fuzz_tail as run;
