//! A map in the kernel.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::call::{self, MapShape};

/// A map that programs and fdguard share.
#[derive(Debug)]
pub struct BpfMap {
    map: OwnedFd,
    shape: MapShape,
}

impl BpfMap {
    pub(crate) fn create(name: &str, shape: MapShape) -> Result<Self, Errno> {
        let map = call::create_map(name, &shape)?;
        Ok(Self { map, shape })
    }

    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> &MapShape {
        &self.shape
    }

    /// The value of a key.
    pub fn read(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        call::read_entry(self.as_fd(), &self.shape, key)
    }

    /// Sets the value of a key.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<(), Errno> {
        call::update_entry(self.as_fd(), &self.shape, key, value)
    }

    /// Removes a key.
    pub fn remove(&self, key: &[u8]) -> Result<(), Errno> {
        call::delete_entry(self.as_fd(), &self.shape, key)
    }

    /// The descriptor's number, as instructions refer to it.
    pub(crate) fn number(&self) -> i32 {
        self.map.as_raw_fd()
    }
}

impl AsFd for BpfMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}
