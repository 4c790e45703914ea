//! One kernel walk over all tables, shared by the threads that read processes: one of them makes
//! it, the others take the completed parts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fdguard_core::Pid;
use rustc_hash::FxHashMap;

use super::KernelReader;
use super::record::Record;

/// The records of one process.
#[derive(Debug, Default)]
pub(in super::super) struct Records {
    start_ticks: u64,
    bytes: Vec<u8>,
}

impl Records {
    /// The bytes, if they belong to the process that started then.
    pub(in super::super) fn of_start(&self, ticks: Option<u64>) -> Option<&[u8]> {
        (ticks == Some(self.start_ticks)).then_some(&self.bytes)
    }
}

/// A walk that can be used while it is in progress.
#[derive(Debug, Default)]
pub(in super::super) struct Walk {
    begun: AtomicBool,
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Everything below this pid is complete.
    complete: Pid,
    over: bool,
    records: FxHashMap<Pid, Records>,
}

impl Walk {
    /// Makes the walk, on the first thread to call this; the others return at once.
    pub(in super::super) fn make(&self, kernel: &KernelReader) {
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        // Also if something below panics: no thread may wait forever.
        let _over = Over(self);
        if self.read_all(kernel).is_none() {
            self.lock().records.clear();
        }
    }

    /// The records of this process, once they are complete; `None` if it has none. Some thread must
    /// make the walk.
    pub(in super::super) fn take(&self, pid: Pid) -> Option<Records> {
        let mut state = self.lock();
        while !state.over && state.complete <= pid {
            state = self
                .moved
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.records.remove(&pid)
    }

    /// `None` if it could not start, or was interrupted: the remaining processes are read from
    /// `/proc`.
    fn read_all(&self, kernel: &KernelReader) -> Option<()> {
        let mut records = kernel.records()?;
        let mut chunk = Vec::new();
        let mut open = Open::default();
        while records.next_chunk(&mut chunk).ok()? {
            open.take(&chunk);
            self.publish(&mut open);
        }
        open.finish();
        self.publish(&mut open);
        Some(())
    }

    /// Publishes what is complete.
    fn publish(&self, open: &mut Open) {
        let mut state = self.lock();
        state.complete = open.pid;
        state.records.extend(open.done.drain(..));
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process whose records are arriving, and the completed ones.
#[derive(Debug, Default)]
struct Open {
    pid: Pid,
    records: Records,
    done: Vec<(Pid, Records)>,
}

impl Open {
    /// Takes a chunk of records.
    fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((record, tail)) = Record::take(rest) {
            if record.pid != self.pid {
                self.finish();
                self.pid = record.pid;
                self.records.start_ticks = record.start_ticks();
            }
            let length = rest.len() - tail.len();
            self.records.bytes.extend_from_slice(&rest[..length]);
            rest = tail;
        }
    }

    /// No more records of this process will come.
    fn finish(&mut self) {
        let records = std::mem::take(&mut self.records);
        if !records.bytes.is_empty() {
            self.done.push((self.pid, records));
        }
    }
}

/// Marks the walk as over when dropped, however it ends.
struct Over<'a>(&'a Walk);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::record::{HEAD, at};
    use super::{Open, Walk};

    /// A record without a path, of this process.
    fn record(pid: u32) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        let length = u32::try_from(HEAD).unwrap();
        for (at, word) in [(at::LENGTH, length), (at::PID, pid)] {
            bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_process_is_complete_when_the_next_one_comes() {
        let walk = Walk::default();
        let mut open = Open::default();
        open.take(&[record(3), record(3), record(8)].concat());
        walk.publish(&mut open);
        let records = walk.take(3).unwrap();
        assert_eq!(
            records.of_start(Some(0)).unwrap().len(),
            2 * record(3).len()
        );
        assert!(records.of_start(Some(1)).is_none());
        assert!(walk.take(7).is_none());
        assert!(walk.lock().complete <= 8);
    }

    #[test]
    fn who_waits_is_woken_when_the_walk_is_over() {
        let walk = Walk::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| walk.take(u32::MAX));
            walk.make(&super::super::KernelReader::default());
            assert!(waiting.join().unwrap().is_none());
        });
        assert!(walk.begun.load(Ordering::Relaxed));
    }
}
