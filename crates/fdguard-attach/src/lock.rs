//! One tracer at a time: a lock on a file of the process's own directory, which ends with its
//! holder.

use std::fs::File;
use std::io;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// Held while a process is entered.
#[derive(Debug)]
pub(crate) struct EntryLock {
    _file: File,
}

impl EntryLock {
    /// Takes the lock; `None` if another fdguard has it.
    pub(crate) fn take(pid: u32) -> io::Result<Option<Self>> {
        let file = File::open(format!("/proc/{pid}/stat"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
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
}
