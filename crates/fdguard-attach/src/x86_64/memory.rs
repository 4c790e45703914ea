//! Reads and writes the memory of another process through `/proc/PID/mem`. The file belongs to the
//! memory that the process has when it is opened: after an exec, nothing of the new program is hit.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

/// The most that is read at once: more than the names of any program take.
const MOST_BYTES: usize = 1 << 28;

/// The memory of one program.
#[derive(Debug)]
pub(crate) struct Memory {
    file: File,
}

impl Memory {
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { file })
    }

    /// A memory that holds these bytes from address 0 on.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of_bytes(bytes: &[u8]) -> io::Result<Self> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("memory", flags)?);
        file.write_all_at(bytes, 0)?;
        Ok(Self { file })
    }

    /// Whether the program has not ended, nor executed another one. Nothing can be read then, while
    /// reading an address without memory is an error.
    pub(crate) fn exists(&self) -> bool {
        !matches!(self.file.read_at(&mut [0], 0), Ok(0))
    }

    pub(crate) fn read_exact(&self, address: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, address)
    }

    /// The length may come from the memory itself: one that no program has is refused, before that
    /// much is allocated.
    pub(crate) fn bytes(&self, address: u64, size: usize) -> io::Result<Vec<u8>> {
        if size > MOST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; size];
        self.read_exact(address, &mut bytes)?;
        Ok(bytes)
    }

    /// As many bytes as are mapped there.
    pub(crate) fn bytes_up_to(&self, address: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let read = self.file.read_at(&mut bytes, address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    pub(crate) fn word(&self, address: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read_exact(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, address)
    }
}

/// The little-endian number at this place of a buffer; zero beyond its end.
pub(crate) fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let field = bytes.get(at..at + size).unwrap_or_default();
    field
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}
