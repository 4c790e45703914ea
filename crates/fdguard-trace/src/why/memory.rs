//! The memory of a process, read through its file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use fdguard_why::Memory;

/// The memory of a process.
#[derive(Debug)]
pub(super) struct ProcessMemory(File);

impl ProcessMemory {
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read_exact_at(into, address).is_ok()
    }
}
