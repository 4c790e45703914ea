//! Machine code of functions without unwind tables.

pub(crate) use fdguard_trace::fuzz_machine_code as run;
