//! The same work on several cores.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

use rustix::thread::CpuSet;

/// Cores worth using: reading `/proc` stops scaling early.
const MOST: usize = 4;

/// Default number of threads.
#[must_use]
pub fn cores() -> usize {
    // The standard library reads the cgroup's files on every call.
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| {
        std::thread::available_parallelism().map_or(1, |cores| cores.get().min(MOST))
    })
}

/// Hands out the indexes of a list in runs, to any worker.
#[derive(Debug)]
pub(crate) struct Queue {
    next: AtomicUsize,
    length: usize,
    run: usize,
}

impl Queue {
    /// A queue over a list of this length, handed out `run` at a time.
    pub(crate) fn new(length: usize, run: usize) -> Self {
        Self {
            next: AtomicUsize::new(0),
            length,
            run,
        }
    }

    /// The next run; `None` when all are handed out.
    pub(crate) fn take(&self) -> Option<std::ops::Range<usize>> {
        let start = self.next.fetch_add(self.run, Ordering::Relaxed);
        (start < self.length).then(|| start..(start + self.run).min(self.length))
    }
}

/// Runs `work` on this thread and on others, and returns the result of each. A thread that cannot
/// be created is no loss: the running ones share the work.
pub fn run<T: Send>(threads: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
    if threads < 2 {
        return vec![work()];
    }
    let free = other_cores();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..threads - 1)
            .filter_map(|index| {
                let core = free.get(index).copied();
                let work = &work;
                let body = move || {
                    move_to(core);
                    work()
                };
                std::thread::Builder::new().spawn_scoped(scope, body).ok()
            })
            .collect();
        let mut results = vec![work()];
        for other in others {
            match other.join() {
                Ok(result) => results.push(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}

/// Runs `aside` concurrently with the main work, if wanted and if a thread can be created; its
/// result comes first.
pub fn beside<A: Send, R>(
    aside: Option<impl FnOnce() -> A + Send>,
    work: impl FnOnce() -> R,
) -> (Option<A>, R) {
    std::thread::scope(|scope| {
        let thread = aside.and_then(|aside| {
            // Those of [`run`] are placed from the first core on.
            let core = other_cores().last().copied();
            let body = move || {
                move_to(core);
                aside()
            };
            std::thread::Builder::new().spawn_scoped(scope, body).ok()
        });
        let result = work();
        (thread.and_then(|thread| thread.join().ok()), result)
    })
}

/// Maps each item, on several cores, in the order of the list.
pub fn map<T: Sync, R: Send>(
    items: &[T],
    per_take: usize,
    turn: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let queue = Queue::new(items.len(), per_take);
    let threads = cores().min(items.len().div_ceil(per_take.max(1)));
    let parts = run(threads, || {
        let mut part = Vec::new();
        while let Some(range) = queue.take() {
            part.extend(range.map(|at| (at, turn(&items[at]))));
        }
        part
    });
    let mut all: Vec<(usize, R)> = parts.into_iter().flatten().collect();
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Works on each item in place, on several cores.
pub fn for_each<T: Send>(items: &mut [T], per_take: usize, work: impl Fn(&mut T) + Sync) {
    let per_take = per_take.max(1);
    let threads = cores().min(items.len().div_ceil(per_take)).max(1);
    let chunks = Mutex::new(items.chunks_mut(per_take));
    run(threads, || {
        loop {
            let chunk = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(chunk) = chunk else { return };
            chunk.iter_mut().for_each(&work);
        }
    });
}

/// Encodes each item on several cores, and passes the bytes on in the order of the list.
pub fn write_each<T: Sync, E: Send>(
    items: &[T],
    encode: impl Fn(&T, &mut Vec<u8>) -> Result<(), E> + Sync,
    write: impl FnMut(&[u8]) -> Result<(), E> + Send,
) -> Result<(), E> {
    let queue = Queue::new(items.len(), 1);
    let turns = Turns {
        state: Mutex::new(Turn {
            next: 0,
            waiting: BTreeMap::new(),
            free: Vec::new(),
            write,
            end: Ok(()),
            is_over: false,
            is_awaited: false,
        }),
        moved: Condvar::new(),
    };
    run(cores().min(items.len()).max(1), || {
        let mut bytes = Vec::new();
        while let Some(at) = queue.take() {
            // Also if the encoding panics: no thread may wait forever.
            let _over = OverOnPanic(&turns);
            bytes.clear();
            let encoded = encode(&items[at.start], &mut bytes);
            match turns.pass_on(at.start, encoded.map(|()| bytes)) {
                Some(free) => bytes = free,
                None => return,
            }
        }
    });
    let state = turns.state.into_inner();
    state.unwrap_or_else(PoisonError::into_inner).end
}

/// So many encoded items may wait for one before them.
const MOST_WAITING: usize = 64;

/// Whose bytes are written next.
struct Turns<W, E> {
    state: Mutex<Turn<W, E>>,
    moved: Condvar,
}

struct Turn<W, E> {
    next: usize,
    /// What was encoded before its turn.
    waiting: BTreeMap<usize, Result<Vec<u8>, E>>,
    /// Buffers to be used again.
    free: Vec<Vec<u8>>,
    write: W,
    end: Result<(), E>,
    is_over: bool,
    /// Whether a thread waits until there is room: to notify nobody is a system call, too.
    is_awaited: bool,
}

impl<W: FnMut(&[u8]) -> Result<(), E>, E> Turns<W, E> {
    /// Writes the bytes of this item and those that waited for it, or keeps them until their turn.
    /// Returns a buffer for the next item; `None` if nothing more is to be written.
    fn pass_on(&self, at: usize, encoded: Result<Vec<u8>, E>) -> Option<Vec<u8>> {
        let mut turn = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while turn.next != at && turn.waiting.len() >= MOST_WAITING && !turn.is_over {
            turn.is_awaited = true;
            turn = self
                .moved
                .wait(turn)
                .unwrap_or_else(PoisonError::into_inner);
        }
        turn.waiting.insert(at, encoded);
        turn.write_ready();
        if std::mem::take(&mut turn.is_awaited) {
            self.moved.notify_all();
        }
        (!turn.is_over).then(|| turn.free.pop().unwrap_or_default())
    }
}

impl<W: FnMut(&[u8]) -> Result<(), E>, E> Turn<W, E> {
    fn write_ready(&mut self) {
        while !self.is_over
            && let Some(encoded) = self.waiting.remove(&self.next)
        {
            let written = encoded.and_then(|bytes| {
                (self.write)(&bytes)?;
                self.free.push(bytes);
                Ok(())
            });
            self.is_over = written.is_err();
            self.end = written;
            self.next += 1;
        }
    }
}

struct OverOnPanic<'a, W, E>(&'a Turns<W, E>);

impl<W, E> Drop for OverOnPanic<'_, W, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let state = self.0.state.lock();
            state.unwrap_or_else(PoisonError::into_inner).is_over = true;
            self.0.moved.notify_all();
        }
    }
}

/// The allowed cores other than the current one.
fn other_cores() -> Vec<usize> {
    let here = rustix::thread::sched_getcpu();
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|core| *core != here && allowed.is_set(*core))
        .collect()
}

/// A new thread starts on its creator's core, and the balancer takes longer to separate them than
/// the work takes: without this, two threads were no faster than one.
fn move_to(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut set = CpuSet::new();
    set.set(core);
    // If refused, the thread runs where it is.
    let _refused = rustix::thread::sched_setaffinity(None, &set);
}

#[cfg(test)]
mod tests {
    use super::{Queue, for_each, map, run, write_each};

    #[test]
    fn every_position_is_handed_out_once() {
        let queue = Queue::new(1000, 7);
        let parts = run(3, || {
            let mut mine = Vec::new();
            while let Some(range) = queue.take() {
                mine.extend(range);
            }
            mine
        });
        let mut all: Vec<usize> = parts.into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn results_come_in_the_order_of_the_list() {
        let numbers: Vec<u64> = (0..500).collect();
        let squares: Vec<u64> = numbers.iter().map(|n| n * n).collect();
        assert_eq!(map(&numbers, 3, |n| n * n), squares);
        let mut in_place = numbers;
        for_each(&mut in_place, 3, |n| *n *= *n);
        assert_eq!(in_place, squares);
        for_each(&mut Vec::<u64>::new(), 0, |_| ());
    }

    #[test]
    fn bytes_are_written_in_the_order_of_the_list_up_to_the_first_error() {
        let numbers: Vec<u8> = (0..200).collect();
        let encode = |number: &u8, bytes: &mut Vec<u8>| {
            bytes.push(*number);
            if *number == 150 {
                Err("enough")
            } else {
                Ok(())
            }
        };
        let mut written = Vec::new();
        let end = write_each(&numbers, encode, |bytes| {
            written.extend_from_slice(bytes);
            Ok(())
        });
        assert_eq!((end, &written[..]), (Err("enough"), &numbers[..150]));
        let mut all = Vec::new();
        let end = write_each(&numbers[..150], encode, |bytes| {
            all.extend_from_slice(bytes);
            Ok(())
        });
        assert_eq!((end, all), (Ok(()), written));
        assert_eq!(write_each(&[], encode, |_| Err("nothing")), Ok(()));
    }
}
