//! Child processes: where they are started, and that they were waited for.

use core::ffi::c_int;

use fdguard_wire::{EventRecord, Kind};

use crate::record::{tell, with};
use crate::{real, stack, thread};

/// A call that starts a child gave this; gives it on, so that a hook can end with it. Only the parent's way back has a number.
pub(crate) fn started(pid: c_int) -> c_int {
    if let Ok(number) = u64::try_from(pid)
        && number > 0
    {
        start([number, 0]);
    }
    pid
}

/// A call started a child, waited for it and keeps its number to itself. It began at this time.
pub(crate) fn started_within(since: u64) {
    start([0, since]);
}

fn start(more: [u64; 2]) {
    with(|mapping| {
        let mut event = event(Kind::Started, more);
        event.stack = stack::here(mapping);
        tell(mapping, &event);
    });
}

/// A child that ended was waited for. The stack does not matter: nobody is blamed for it.
pub(crate) fn reaped(pid: c_int) {
    if let Ok(number) = u64::try_from(pid)
        && number > 0
    {
        with(|mapping| tell(mapping, &event(Kind::Reaped, [number, 0])));
    }
}

fn event(kind: Kind, more: [u64; 2]) -> EventRecord {
    EventRecord {
        kind,
        code: 0,
        errno: 0,
        tid: thread::tid(),
        ns: real::now(),
        fd: 0,
        stack: 0,
        more,
    }
}
