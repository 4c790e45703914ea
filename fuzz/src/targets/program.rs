//! Files of traced programs: unwind tables, interpreters, the language.

pub(crate) use fdguard_trace::fuzz_program as run;
