//! Records opens and closes of descriptors in the mapping.

use core::ffi::c_int;

pub(crate) use fdguard_wire::PreventedHarm;
use fdguard_wire::{
    CloseCall, CloseRecord, EventKind, EventRecord, OpenCall, OpenRecord, TableMapping,
};

use crate::start::{self, GROUND};
use crate::why::pause;
use crate::{agent_message, close_sweep, errno, inflight, lock, protect, real, stack, thread};

const EBADF: c_int = 9;
const ENFILE: c_int = 23;
const EMFILE: c_int = 24;

/// A descriptor was opened. Returns its number, so that a hook can end with this call.
pub(crate) fn born(fd: c_int, how: OpenCall) -> c_int {
    born_of(fd, how, 0)
}

/// The same, with what else the call reveals about it: see [`EventKind::Open`].
pub(crate) fn born_of(fd: c_int, how: OpenCall, more: u64) -> c_int {
    protect::arrived(fd);
    match u32::try_from(fd) {
        Ok(number) => {
            with(|mapping| open(mapping, number, (how, more), None));
            pause::opened();
        }
        Err(_) => refused(how),
    }
    fd
}

/// What a call that opens sockets reveals about them.
pub(crate) fn socket_bits(domain: c_int, kind: c_int) -> u64 {
    u64::from(domain.cast_unsigned()) << 32 | u64::from(kind.cast_unsigned())
}

/// A descriptor was opened as a duplicate of another number.
pub(crate) fn born_from(fd: c_int, how: OpenCall, from: c_int) -> c_int {
    born_of(fd, how, u64::from(from.cast_unsigned()).wrapping_add(1))
}

/// A descriptor was opened at the number of another one, which this closed.
pub(crate) fn reborn(fd: c_int, how: OpenCall, from: c_int) {
    if fd >= 0 {
        end(fd, ending(fd), 0, CloseCall::Dup2 as u8);
        born_from(fd, how, from);
    }
}

/// The same for a call that may itself have opened it through another hook, which then knew more.
pub(crate) fn born_within(fd: c_int, how: OpenCall, since: u64) {
    protect::arrived(fd);
    match u32::try_from(fd) {
        Ok(number) => {
            with(|mapping| open(mapping, number, (how, 0), Some(since)));
            pause::opened();
        }
        Err(_) => refused(how),
    }
}

/// A call that opens a descriptor failed; recorded if a descriptor table is full.
fn refused(how: OpenCall) {
    let error = errno::load();
    if error != EMFILE && error != ENFILE {
        return;
    }
    with(|mapping| {
        let mut event = event(EventKind::Refused, 0, how as u8);
        event.errno = u16::try_from(error).unwrap_or(0);
        event.stack = stack::here(mapping);
        tell(mapping, &event);
    });
}

/// `select` was called with a number that its set has no bit for.
pub(crate) fn selected(numbers: u32) {
    with(|mapping| {
        let mut event = event(EventKind::Select, numbers, 0);
        event.stack = stack::here(mapping);
        tell(mapping, &event);
    });
}

fn event(kind: EventKind, fd: u32, code: u8) -> EventRecord {
    EventRecord {
        kind,
        code,
        errno: 0,
        tid: thread::tid(),
        ns: real::now(),
        fd,
        stack: 0,
        more: [0; 2],
    }
}

/// Puts an event into the ring.
pub(crate) fn tell(mapping: &TableMapping, event: &EventRecord) {
    mapping.write_event(&GROUND, mapping.ticket(), event);
}

/// The start time of a call that may end in [`born_within`].
pub(crate) fn now() -> u64 {
    if start::is_on() { real::now() } else { 0 }
}

/// A runtime's agent reported the code that requested a descriptor.
pub(crate) fn told(message: &[u8]) {
    with(|mapping| agent_message::handle(mapping, &GROUND, message));
}

/// A close, as recorded before it happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    death: Option<CloseRecord>,
    /// Its place in the order of events; `None` if the mapping is not this process's own.
    ticket: Option<u64>,
    ns: u64,
    is_under_a_call: bool,
}

impl Ending {
    /// Whether it was seen being opened and not yet closed: of several closers this holds for one.
    pub(crate) fn was_known(&self) -> bool {
        self.death.is_some()
    }

    /// Whether another thread was inside a call on it.
    pub(crate) fn is_under_a_call(&self) -> bool {
        self.is_under_a_call
    }
}

/// A descriptor is about to be closed. Recorded before the call, because after it another thread
/// may get the number.
pub(crate) fn ending(fd: c_int) -> Ending {
    let mut ending = Ending {
        death: None,
        ticket: None,
        ns: 0,
        is_under_a_call: false,
    };
    if let Ok(number) = u32::try_from(fd)
        && let Some(mapping) = start::mapping()
    {
        // A few atomic steps that need neither the stack nor errno.
        lock::closing(mapping, number);
        ending.ns = real::now();
        ending.death = mapping.close(&GROUND, number, ending.ns);
        let generation = ending.death.map_or(0, |death| death.generation);
        let is_any = &mut ending.is_under_a_call;
        let ns = ending.ns;
        inflight::tear(number, generation, |tid, code| {
            *is_any = true;
            let mut inside = event(EventKind::Inside, number, code);
            inside.tid = tid;
            inside.ns = ns;
            tell(mapping, &inside);
        });
        ending.ticket = Some(mapping.ticket());
    }
    ending
}

/// It was closed, or not: if the result is `-1`, the error is recorded.
pub(crate) fn ended(fd: c_int, ending: Ending, result: c_int) {
    if fd < 0 && result == -1 && errno::load() == EBADF {
        never_open(fd);
        return;
    }
    end(fd, ending, result, CloseCall::Close as u8);
}

/// A close of a number that is out of range.
#[cold]
#[inline(never)]
fn never_open(fd: c_int) {
    with(|mapping| {
        let mut event = event(EventKind::Close, fd.cast_unsigned(), CloseCall::Close as u8);
        event.errno = u16::try_from(EBADF).unwrap_or(0);
        event.stack = stack::here(mapping);
        tell(mapping, &event);
    });
}

/// The same, with the harm that was prevented.
pub(crate) fn ended_by(fd: c_int, ending: Ending, result: c_int, prevented: Option<PreventedHarm>) {
    let mut code = CloseCall::Close as u8;
    if let Some(prevented) = prevented {
        code |= PreventedHarm::BIT;
        if let Some(mapping) = start::current() {
            mapping.prevented(prevented);
        }
    }
    end(fd, ending, result, code);
}

#[inline(always)]
fn end(fd: c_int, ending: Ending, result: c_int, code: u8) {
    let (Ok(number), Some(ticket)) = (u32::try_from(fd), ending.ticket) else {
        return;
    };
    let Some(mapping) = start::current() else {
        return;
    };
    let error = if result == -1 { errno::load() } else { 0 };
    // The close happened before every event that gets its place in the order from now on.
    let until = mapping.tickets();
    let told = |stack: u32| EventRecord {
        kind: EventKind::Close,
        code,
        errno: u16::try_from(error).unwrap_or(0),
        tid: thread::tid(),
        ns: ending.ns,
        fd: number,
        stack,
        more: [until, u64::from(inflight::has_threads())],
    };
    let is_recorded = record(mapping, |mapping| {
        let stack = close_sweep::next_fd(number).unwrap_or_else(|| stack::here(mapping));
        mapping.write_event(&GROUND, ticket, &told(stack));
    });
    if !is_recorded {
        // A signal handler interrupted a record: its place in the order of events was already
        // taken, and leaving it empty would put everything known in doubt.
        mapping.write_event(&GROUND, ticket, &told(0));
    }
}

/// All numbers of a range are about to be closed.
pub(crate) fn range_ending(first: u32, last: u32) {
    with(|mapping| {
        let mut event = event(EventKind::CloseRange, first, 0);
        event.more = [u64::from(last), 0];
        event.stack = stack::here(mapping);
        tell(mapping, &event);
        let (numbers, now) = (mapping.numbers(), event.ns);
        for fd in first..=last {
            if fd >= numbers {
                break;
            }
            mapping.close(&GROUND, fd, now);
        }
    });
}

/// Runs `work` with the mapping, if this process has one and this thread is not already in the
/// recorder. Preserves `errno`.
#[inline]
pub(crate) fn with(work: impl FnOnce(&'static TableMapping)) {
    if let Some(mapping) = start::mapping()
        && !record(mapping, work)
    {
        // A signal handler interrupted a record.
        mapping.lose_event();
    }
}

/// Returns whether `work` ran: it does not while this thread is in another record.
#[inline(never)]
fn record(mapping: &'static TableMapping, work: impl FnOnce(&'static TableMapping)) -> bool {
    let place = 0_u8;
    if !thread::enter(&raw const place as usize) {
        return false;
    }
    let error = errno::load();
    work(mapping);
    errno::store(error);
    thread::leave();
    true
}

#[inline(always)]
fn open(mapping: &TableMapping, fd: u32, (how, more): (OpenCall, u64), since: Option<u64>) {
    let tid = thread::tid();
    if let (Some(since), Some(known)) = (since, mapping.open_record(&GROUND, fd))
        && known.tid == tid
        && known.ns >= since
    {
        return;
    }
    let birth = OpenRecord {
        stack: stack::here(mapping),
        tid,
        ns: real::now(),
        call: how,
        forks: 0,
    };
    mapping.open(&GROUND, fd, &birth);
    let event = EventRecord {
        kind: EventKind::Open,
        code: how as u8,
        errno: 0,
        tid,
        ns: birth.ns,
        fd,
        stack: birth.stack,
        more: [more, 0],
    };
    tell(mapping, &event);
}
