//! Code objects of Python, copied from the memory of a process.

pub(crate) use fdguard_trace::fuzz_captured_code as run;
