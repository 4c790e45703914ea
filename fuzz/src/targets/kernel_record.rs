//! Records of the kernel programs: events, stacks and code objects.

pub(crate) use fdguard_kernel::fuzzing::decode_records as run;
