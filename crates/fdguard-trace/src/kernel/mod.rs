//! Traces processes from inside the kernel.

pub(crate) mod python;
