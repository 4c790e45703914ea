//! Asks the kernel whether a file has writers: it grants a read lease only if there are none.
//!
//! This covers descriptors of all processes, mappings, descriptors in transit through a socket,
//! files registered in an io_uring, and hard links. It does not cover a writer that uses the upper
//! directory of an overlay.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::io::Errno;
use serde::Serialize;

use crate::sys;

/// The kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseAnswer {
    /// There is no writer.
    NoWriter,
    /// There is a writer.
    Writer,
    /// The file belongs to another user: only the owner or `CAP_LEASE` may request a lease.
    Denied,
    /// This file system does not support leases.
    Unsupported,
}

/// Asks the kernel. The lease is released immediately; a process that opens the file for writing in
/// that instant waits for it.
#[must_use]
pub fn ask(file: impl AsFd) -> LeaseAnswer {
    match sys::lease(&file) {
        Ok(()) => {
            // This fails only if a new writer has already broken the lease.
            let _ = sys::release(&file);
            LeaseAnswer::NoWriter
        }
        Err(error) => answer(error),
    }
}

fn answer(error: Errno) -> LeaseAnswer {
    match error {
        Errno::AGAIN => LeaseAnswer::Writer,
        Errno::ACCESS | Errno::PERM => LeaseAnswer::Denied,
        _ => LeaseAnswer::Unsupported,
    }
}

/// A lease that is kept: new writers wait until it is dropped, at most for the kernel's
/// lease-break-time.
#[derive(Debug)]
pub struct HeldLease {
    file: File,
}

impl HeldLease {
    /// Takes the lease if there is no writer.
    pub fn acquire(file: File) -> Result<Self, LeaseAnswer> {
        match sys::lease(&file) {
            Ok(()) => Ok(Self { file }),
            Err(error) => Err(answer(error)),
        }
    }

    /// Whether no process has tried to write since.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        sys::has_lease(&self.file)
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        // Closing would release it as well.
        let _ = sys::release(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::{HeldLease, LeaseAnswer, ask};

    #[test]
    fn a_writer_is_seen_and_its_end_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(ask(&reader), LeaseAnswer::NoWriter);
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        assert_eq!(ask(&reader), LeaseAnswer::Writer);
        drop(writer);
        assert_eq!(ask(&reader), LeaseAnswer::NoWriter);
    }

    #[test]
    fn a_newcomer_waits_for_a_lease_that_is_kept_and_breaks_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let kept = HeldLease::acquire(File::open(&path).unwrap()).unwrap();
        assert!(kept.is_whole());
        let waiting =
            std::thread::spawn(move || OpenOptions::new().append(true).open(path).unwrap());
        while kept.is_whole() {
            std::thread::yield_now();
        }
        drop(kept);
        waiting.join().unwrap();
    }
}
