//! The kernel's type information, without a copy where the kernel lets it be mapped.
#![expect(unsafe_code, reason = "the file is mapped, which no safe wrapper does")]

use std::fs::File;
use std::io::Read as _;
use std::ops::Deref;

use rustix::mm::{MapFlags, ProtFlags};

const PATH: &str = "/sys/kernel/btf/vmlinux";

/// The bytes of the description.
#[derive(Debug)]
pub struct KernelTypes(Bytes);

#[derive(Debug)]
enum Bytes {
    /// Linux 6.16 and later: most pages are never needed, and a copy of all takes longer than the
    /// search.
    Mapped(Mapping),
    Read(Vec<u8>),
}

/// A mapping of the whole file, read-only.
#[derive(Debug)]
struct Mapping {
    start: *mut core::ffi::c_void,
    length: usize,
}

impl KernelTypes {
    pub(crate) fn read() -> std::io::Result<Self> {
        let mut file = File::open(PATH)?;
        let length = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
        if let Ok(mapping) = Mapping::of(&file, length) {
            return Ok(Self(Bytes::Mapped(mapping)));
        }
        let mut bytes = Vec::with_capacity(length + 1);
        file.read_to_end(&mut bytes)?;
        Ok(Self(Bytes::Read(bytes)))
    }
}

impl Deref for KernelTypes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Mapped(mapping) => mapping.bytes(),
            Bytes::Read(bytes) => bytes,
        }
    }
}

impl Mapping {
    fn of(file: &File, length: usize) -> rustix::io::Result<Self> {
        let (may, how) = (ProtFlags::READ, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, may, how, file, 0)? };
        Ok(Self { start, length })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length until it is dropped, and the kernel never changes its
        // description of itself.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the whole mapping, and nothing borrows it any more. If it failed, the
        // mapping would stay until the end of the process.
        let _kept = unsafe { rustix::mm::munmap(self.start, self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::KernelTypes;

    #[test]
    fn the_mapping_is_the_file() {
        let Ok(bytes) = std::fs::read(super::PATH) else {
            testkit::skip("the kernel has no type information");
            return;
        };
        assert!(*KernelTypes::read().unwrap() == *bytes);
    }
}
