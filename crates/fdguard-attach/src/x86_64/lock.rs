//! One tracer at a time: a lock on a file of the process's own directory, which ends with its
//! holder.

use std::fs::File;
use std::io;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Held while a process is entered.
#[derive(Debug)]
pub(crate) struct EntryLock {
    file: File,
}

impl EntryLock {
    /// Takes the lock; `None` if another fdguard has it.
    pub(crate) fn take(pid: u32) -> io::Result<Option<Self>> {
        let file = File::open(format!("/proc/{pid}/stat"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for EntryLock {
    fn drop(&mut self) {
        // To close it is not enough: a child that another thread has just forked may hold it, too.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::EntryLock;

    #[test]
    fn the_second_waits_for_the_first() {
        let pid = std::process::id();
        let first = EntryLock::take(pid).unwrap();
        assert!(first.is_some());
        assert!(EntryLock::take(pid).unwrap().is_none());
        drop(first);
        assert!(EntryLock::take(pid).unwrap().is_some());
    }

    #[test]
    fn a_copy_of_the_file_does_not_hold_the_lock() {
        let pid = std::process::id();
        let first = EntryLock::take(pid).unwrap().unwrap();
        let copy = first.file.try_clone().unwrap();
        drop(first);
        assert!(EntryLock::take(pid).unwrap().is_some());
        drop(copy);
    }
}
