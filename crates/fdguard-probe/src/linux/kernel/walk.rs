//! One walk of the kernel over all tables, shared by the threads that read processes: one of them makes it, the
//! others take from it what is complete.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use fdguard_core::Pid;
use rustc_hash::FxHashMap;

use super::record::Record;

/// As much as the kernel gives at once.
const CHUNK: usize = 1 << 15;

/// The records of one process.
#[derive(Debug, Default)]
pub(in super::super) struct Records {
    start_ticks: u64,
    bytes: Vec<u8>,
}

impl Records {
    /// The bytes, if they are of the process that started then.
    pub(in super::super) fn of_start(&self, ticks: Option<u64>) -> Option<&[u8]> {
        (ticks == Some(self.start_ticks)).then_some(&self.bytes)
    }
}

/// A walk that is made while it is used.
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
    /// Makes the walk, on the first thread that comes here; the others return at once.
    pub(in super::super) fn make(&self) {
        if self.begun.swap(true, Ordering::Relaxed) {
            return;
        }
        // Also when something below panics: nobody may wait for ever.
        let _over = Over(self);
        if self.read_all().is_none() {
            self.lock().records.clear();
        }
    }

    /// The records of this process, once they are complete; `None` when it has none. Somebody must make the walk.
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

    /// `None` when it could not be begun, or broke off: what was not taken yet is read the other way.
    fn read_all(&self) -> Option<()> {
        let iterator = super::iterator()?;
        let mut buffer = vec![0; CHUNK];
        let mut length = 0;
        let mut open = Open::default();
        loop {
            let read = super::read(&iterator, &mut buffer[length..]).ok()?;
            if read == 0 {
                break;
            }
            length += read;
            let used = self.hand_out(&buffer[..length], &mut open);
            buffer.copy_within(used..length, 0);
            length -= used;
        }
        self.finish(&mut open);
        (length == 0).then_some(())
    }

    /// Takes whole records off the front, and says how many bytes they were.
    fn hand_out(&self, bytes: &[u8], open: &mut Open) -> usize {
        let mut rest = bytes;
        while let Some((record, tail)) = Record::take(rest) {
            if record.pid != open.pid {
                self.finish(open);
                open.pid = record.pid;
                open.records.start_ticks = record.start_ticks();
            }
            let length = rest.len() - tail.len();
            open.records.bytes.extend_from_slice(&rest[..length]);
            rest = tail;
        }
        bytes.len() - rest.len()
    }

    /// The process is complete.
    fn finish(&self, open: &mut Open) {
        let records = std::mem::take(&mut open.records);
        let mut state = self.lock();
        state.complete = open.pid.saturating_add(1);
        if !records.bytes.is_empty() {
            state.records.insert(open.pid, records);
        }
        self.moved.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process whose records are coming.
#[derive(Debug, Default)]
struct Open {
    pid: Pid,
    records: Records,
}

/// Says that the walk is over, however it ends.
struct Over<'a>(&'a Walk);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.lock().over = true;
        self.0.moved.notify_all();
    }
}
