//! Records of the walk through the kernel's tables of descriptors.

pub(crate) use fdguard_probe::linux::fuzz_walk as run;
