//! POSIX locks: they belong to the process and the file, and are released when any descriptor of
//! that file is closed.

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use fdguard_wire::{EventKind, EventRecord, LOCK_BEGINS, TableMapping};

use crate::{real, record, stack, start, sys, thread};

/// Descriptors with locks that are remembered; locks through further ones are not seen.
const LOCKED: usize = 64;

/// A descriptor through which locks were requested.
struct Locked {
    /// Number in the upper half, generation in the lower; 0 if empty.
    which: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    /// Whether the stack of its first lock was recorded.
    has_stack: AtomicBool,
}

static ALL: [Locked; LOCKED] = [const {
    Locked {
        which: AtomicU64::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        has_stack: AtomicBool::new(false),
    }
}; LOCKED];
/// One past the last slot ever used; 0 in programs that lock nothing.
static USED: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: locks are not inherited.
pub(crate) fn forget() {
    for place in ALL.iter().take(USED.swap(0, Ordering::Relaxed)) {
        place.which.store(0, Ordering::Relaxed);
    }
}

/// A call that changes locks, from before it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    fd: u32,
    /// The slot that remembers the descriptor.
    place: Option<usize>,
}

/// What such a call did: first byte and one past the last, `None` if the range is unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Failed,
    Locked(Option<[u64; 2]>),
    Unlocked(Option<[u64; 2]>),
}

/// A lock is about to be taken or released through a number. This is recorded, because a close by
/// another thread in the meantime may come before or after it. The file is recorded, too: SQLite
/// releases through one descriptor what it took through another.
pub(crate) fn changing(fd: u32) -> Option<Change> {
    let mapping = start::mapping()?;
    let turn = mapping.turn(&start::GROUND, fd);
    let place = known(fd, turn).or_else(|| remember(mapping, fd, turn));
    let mut begins = event(fd, EventKind::Lock);
    begins.code = LOCK_BEGINS;
    record::tell(mapping, &begins);
    Some(Change { fd, place })
}

pub(crate) fn changed(change: Change, outcome: Outcome) {
    let Some(mapping) = start::current() else {
        return;
    };
    match outcome {
        Outcome::Failed => {}
        Outcome::Unlocked(range) => {
            record::tell(mapping, &told(change.fd, EventKind::Unlock, range))
        }
        Outcome::Locked(range) => {
            let Some(place) = change.place.and_then(|place| ALL.get(place)) else {
                return;
            };
            let lock = told(change.fd, EventKind::Lock, range);
            // Once per descriptor: databases lock and unlock at every statement.
            if place.has_stack.swap(true, Ordering::Relaxed) {
                record::tell(mapping, &lock);
            } else {
                record::with(|mapping| {
                    let stack = stack::here(mapping);
                    record::tell(mapping, &EventRecord { stack, ..lock });
                });
            }
        }
    }
}

fn told(fd: u32, kind: EventKind, range: Option<[u64; 2]>) -> EventRecord {
    EventRecord {
        more: range.unwrap_or([0, u64::MAX]),
        ..event(fd, kind)
    }
}

/// Before a close: if the file is locked through another number, records which file this is.
pub(crate) fn closing(mapping: &TableMapping, fd: u32) {
    let used = USED.load(Ordering::Relaxed).min(LOCKED);
    if used == 0 {
        return;
    }
    let Some((device, inode)) = sys::file(fd) else {
        return;
    };
    let is_it = |place: &Locked| {
        let which = place.which.load(Ordering::Acquire);
        which != 0
            && which >> 32 != u64::from(fd)
            && place.inode.load(Ordering::Relaxed) == inode
            && place.device.load(Ordering::Relaxed) == device
    };
    if ALL.iter().take(used).any(is_it) {
        tell_file(mapping, fd, device, inode);
    }
}

/// Whether a lock was taken on this file through a descriptor that may still be open.
pub(crate) fn is_locked(device: u64, inode: u64) -> bool {
    let used = USED.load(Ordering::Relaxed).min(LOCKED);
    ALL.iter().take(used).any(|place| {
        place.which.load(Ordering::Acquire) != 0
            && place.inode.load(Ordering::Relaxed) == inode
            && place.device.load(Ordering::Relaxed) == device
    })
}

fn known(fd: u32, turn: u32) -> Option<usize> {
    let used = USED.load(Ordering::Relaxed).min(LOCKED);
    let mut places = ALL.iter().take(used);
    places.position(|place| place.which.load(Ordering::Relaxed) == which(fd, turn))
}

fn which(fd: u32, turn: u32) -> u64 {
    u64::from(fd) << 32 | u64::from(turn)
}

/// Gives a descriptor a slot and records which file it is; only records it if no slot is left.
fn remember(mapping: &TableMapping, fd: u32, turn: u32) -> Option<usize> {
    let (device, inode) = sys::file(fd)?;
    tell_file(mapping, fd, device, inode);
    // A number that was closed since has no locks any more.
    let is_over = |which: u64| {
        let (fd, turn) = ((which >> 32) as u32, (which & 0xffff_ffff) as u32);
        which == 0 || mapping.turn(&start::GROUND, fd) != turn
    };
    for (index, place) in ALL.iter().enumerate() {
        let known = place.which.load(Ordering::Acquire);
        let claim = is_over(known)
            && place
                .which
                .compare_exchange(known, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if claim {
            place.device.store(device, Ordering::Relaxed);
            place.inode.store(inode, Ordering::Relaxed);
            place.has_stack.store(false, Ordering::Relaxed);
            place.which.store(which(fd, turn), Ordering::Release);
            USED.fetch_max(index + 1, Ordering::Relaxed);
            return Some(index);
        }
    }
    None
}

fn tell_file(mapping: &TableMapping, fd: u32, device: u64, inode: u64) {
    let mut event = event(fd, EventKind::File);
    event.more = [device, inode];
    record::tell(mapping, &event);
}

fn event(fd: u32, kind: EventKind) -> EventRecord {
    EventRecord {
        kind,
        code: 0,
        errno: 0,
        tid: thread::tid(),
        ns: real::now(),
        fd,
        stack: 0,
        more: [0; 2],
    }
}
