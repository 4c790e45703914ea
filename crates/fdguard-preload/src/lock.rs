//! POSIX locks: they belong to the process and the file, and go when any descriptor of that file is closed.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use fdguard_wire::{EventRecord, Kind, Mapping};

use crate::record;
use crate::{real, stack, sys, thread};

/// Descriptors with locks that are remembered; a lock through one more is not seen.
const LOCKED: usize = 64;

/// A descriptor through which a lock was taken.
struct Locked {
    /// Number in the upper half, turn in the lower; 0: empty.
    which: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
}

static ALL: [Locked; LOCKED] = [const {
    Locked {
        which: AtomicU64::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; LOCKED];
/// Behind the last place that was ever used; 0 in programs that lock nothing.
static USED: AtomicUsize = AtomicUsize::new(0);

/// In a forked child: locks are not inherited.
pub(crate) fn forget() {
    for place in ALL.iter().take(USED.swap(0, Ordering::Relaxed)) {
        place.which.store(0, Ordering::Relaxed);
    }
}

/// A lock was taken or given back through a number: of these bytes, all of them when the range is not known.
pub(crate) fn changed(fd: u32, range: Option<[u64; 2]>, is_taken: bool) {
    record::with(|mapping| {
        let turn = mapping.turn(fd);
        let is_new = is_taken && !is_known(fd, turn);
        if !is_taken && USED.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut event = event(fd, if is_taken { Kind::Lock } else { Kind::Unlock });
        event.more = range.unwrap_or([0, u64::MAX]);
        if is_new {
            // Once for each descriptor: databases lock and unlock at every statement.
            if !remember(mapping, fd, turn) {
                return;
            }
            event.stack = stack::here(mapping);
        }
        record::tell(mapping, &event);
    });
}

/// Before a close: if the file is locked through another number, says which file this is.
pub(crate) fn closing(mapping: &Mapping, fd: u32) {
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

fn is_known(fd: u32, turn: u32) -> bool {
    let used = USED.load(Ordering::Relaxed).min(LOCKED);
    let mut places = ALL.iter().take(used);
    places.any(|place| place.which.load(Ordering::Relaxed) == which(fd, turn))
}

fn which(fd: u32, turn: u32) -> u64 {
    u64::from(fd) << 32 | u64::from(turn)
}

fn remember(mapping: &Mapping, fd: u32, turn: u32) -> bool {
    let Some((device, inode)) = sys::file(fd) else {
        return false;
    };
    // Of a number that was closed since, nothing is locked any more.
    let is_over = |which: u64| {
        let (fd, turn) = ((which >> 32) as u32, (which & 0xffff_ffff) as u32);
        which == 0 || mapping.turn(fd) != turn
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
            place.which.store(which(fd, turn), Ordering::Release);
            USED.fetch_max(index + 1, Ordering::Relaxed);
            tell_file(mapping, fd, device, inode);
            return true;
        }
    }
    false
}

fn tell_file(mapping: &Mapping, fd: u32, device: u64, inode: u64) {
    let mut event = event(fd, Kind::File);
    event.more = [device, inode];
    record::tell(mapping, &event);
}

fn event(fd: u32, kind: Kind) -> EventRecord {
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
