//! The memory of a process that is to be entered: the headers and symbols of its files.

pub(crate) use fdguard_attach::fuzz_image as run;
