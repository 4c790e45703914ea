//! Births and ends of descriptors into the mapping.

use core::ffi::c_int;

use fdguard_wire::{Birth, CloseRecord, Death, How, Mapping};

use crate::start::{self, GROUND};
use crate::{errno, real, stack, thread, told};

/// A descriptor came into being; gives its number on, so that a hook can end with it.
pub(crate) fn born(fd: c_int, how: How) -> c_int {
    if let Ok(number) = u32::try_from(fd) {
        with(|mapping| open(mapping, number, how, None));
    }
    fd
}

/// A descriptor came into being in the place of another one, which ended with that.
pub(crate) fn reborn(fd: c_int, how: How) {
    if fd >= 0 {
        ended(fd, ending(fd), 0);
        born(fd, how);
    }
}

/// Two at once.
pub(crate) fn both_born(fds: [c_int; 2], how: How) {
    for fd in fds {
        born(fd, how);
    }
}

/// The same for a call that may itself have opened it through another hook, which then knew more.
pub(crate) fn born_within(fd: c_int, how: How, since: u64) {
    if let Ok(number) = u32::try_from(fd) {
        with(|mapping| open(mapping, number, how, Some(since)));
    }
}

/// When a call began that may end in [`born_within`].
pub(crate) fn now() -> u64 {
    if start::is_on() { real::now() } else { 0 }
}

/// A runtime's agent told who asked for a descriptor.
pub(crate) fn told(message: &[u8]) {
    with(|mapping| told::take(mapping, &GROUND, message));
}

/// What a close was told before it happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    death: Option<Death>,
    /// Whether this process was asked about already, and the mapping is its own.
    is_ours: bool,
}

/// A descriptor is about to be closed. Written before the call: after it another thread may have the number.
pub(crate) fn ending(fd: c_int) -> Ending {
    let mut ending = Ending {
        death: None,
        is_ours: false,
    };
    if let Ok(number) = u32::try_from(fd)
        && let Some(mapping) = start::mapping()
    {
        // A few atomic steps that need neither the stack nor errno.
        ending.death = mapping.close(number);
        ending.is_ours = true;
    }
    ending
}

/// It was closed, or not: with `-1` as its result the error is remembered.
pub(crate) fn ended(fd: c_int, ending: Ending, result: c_int) {
    let Ok(number) = u32::try_from(fd) else {
        return;
    };
    let Some(mapping) = start::current().filter(|_| ending.is_ours) else {
        return;
    };
    let error = if result == -1 { errno::load() } else { 0 };
    record(mapping, |mapping| {
        let record = CloseRecord {
            fd: number,
            generation: ending.death.map_or(0, |death| death.generation),
            stack: stack::here(mapping),
            tid: thread::tid(),
            ns: real::now(),
            errno: u32::try_from(error).unwrap_or(0),
        };
        mapping.remember(&GROUND, &record);
    });
}

/// All numbers of a range are about to be closed.
pub(crate) fn range_ending(first: u32, last: u32) {
    with(|mapping| {
        let numbers = mapping.numbers();
        for fd in first..=last {
            if fd >= numbers {
                break;
            }
            mapping.close(fd);
        }
    });
}

/// Runs `work` with the mapping, if this process has one and this thread is not in the recorder already; `errno`
/// is as before afterwards.
#[inline]
fn with(work: impl FnOnce(&'static Mapping)) {
    if let Some(mapping) = start::mapping() {
        record(mapping, work);
    }
}

#[inline(never)]
fn record(mapping: &'static Mapping, work: impl FnOnce(&'static Mapping)) {
    let place = 0_u8;
    if !thread::enter(&raw const place as usize) {
        // A signal handler in the middle of a record.
        mapping.lose_event();
        return;
    }
    let error = errno::load();
    work(mapping);
    errno::store(error);
    thread::leave();
}

fn open(mapping: &Mapping, fd: u32, how: How, since: Option<u64>) {
    let tid = thread::tid();
    if let (Some(since), Some(known)) = (since, mapping.birth_of(fd))
        && known.tid == tid
        && known.ns >= since
    {
        return;
    }
    let birth = Birth {
        stack: stack::here(mapping),
        tid,
        ns: real::now(),
        how,
        forks: 0,
    };
    mapping.open(&GROUND, fd, &birth);
}
