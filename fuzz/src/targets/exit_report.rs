//! What a traced program had open when it exited, as it wrote that down itself.

pub(crate) use fdguard_trace::fuzz_exit_report as run;
