//! Which thread is in a call on which number, for threads that close it.
//!
//! Each thread of a multi-threaded program has an entry. Entering a call takes two or three stores
//! and never waits. A closing thread reads the entries of the others and may miss a call that
//! starts at the same moment. A handler that leaves a call with `longjmp` leaves its mark until the
//! thread's next call.

#![expect(
    unsafe_code,
    reason = "thread-local memory without the standard library, and the C library's keys"
)]

use core::arch::{asm, global_asm};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use fdguard_wire::FdCall;

use crate::real::Real;
use crate::thread;

/// Threads that have an entry at the same time; calls of other threads are not seen.
const SEATS: usize = 256;
/// Numbers of one `poll` that are noted.
pub(crate) const NOTED: usize = 16;
/// Means "see the noted numbers".
const SEVERAL: u32 = u32::MAX;
const INSIDE: u64 = 1 << 63;
/// Keys below this have their slot in the thread itself: setting one allocates nothing.
const SMALL_KEYS: c_uint = 32;
/// Closes form a row after this many steps to an adjacent number.
const ROW: usize = 3;
/// Numbers that a thread remembers having used, each in one slot.
const CLAIMS: usize = 64;

struct Seat {
    tid: AtomicU32,
    turn: AtomicU32,
    /// The number that another thread closed during the call, plus one.
    torn: AtomicU32,
    noted: [AtomicU32; NOTED],
}

/// The call of each thread, close together because every close reads them.
static CALLS: [AtomicU64; SEATS] = [const { AtomicU64::new(0) }; SEATS];
static ROOM: [Seat; SEATS] = [const {
    Seat {
        tid: AtomicU32::new(0),
        turn: AtomicU32::new(0),
        torn: AtomicU32::new(0),
        noted: [const { AtomicU32::new(0) }; NOTED],
    }
}; SEATS];
/// One past the last entry ever taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);
/// The C library's key that reports a thread's end, plus one.
static KEY: AtomicU32 = AtomicU32::new(0);

global_asm!(
    ".pushsection .tbss.fdguard_seat,\"awT\",@nobits",
    ".balign 8",
    ".type fdguard_seat,@object",
    ".size fdguard_seat,{size}",
    ".hidden fdguard_seat",
    ".globl fdguard_seat",
    "fdguard_seat:",
    ".zero {size}",
    ".popsection",
    size = const size_of::<Own>(),
);

/// The words of a thread. All zeros at first.
#[repr(C)]
struct Own {
    /// The index of its entry plus one; [`SEATLESS`] if none was left.
    seat: AtomicUsize,
    /// The number that it closed last, and how many neighbours before that, upward and downward.
    closed: AtomicUsize,
    up: AtomicUsize,
    down: AtomicUsize,
    /// A number that it closed a second time, plus one.
    suspect: AtomicUsize,
    claims: [AtomicU64; CLAIMS],
}

const SEATLESS: usize = usize::MAX;

fn own() -> &'static Own {
    let place: usize;
    // SAFETY: reads the offset that the loader wrote, and the thread pointer; both exist once this
    // code runs.
    unsafe {
        asm!(
            "mov {place}, qword ptr [rip + fdguard_seat@GOTTPOFF]",
            "add {place}, qword ptr fs:[0]",
            place = out(reg) place,
            options(pure, readonly, nostack),
        );
    }
    // SAFETY: words of the calling thread, aligned, initially zero, and atomic because its signal
    // handlers access them, too. The reference does not outlive the call that asked for it, and so
    // not the thread.
    unsafe { &*(place as *const Own) }
}

// SAFETY: not a function: a variable of glibc 2.32 and later that is 0 once a second thread has
// existed. Only its address is taken.
static SINGLE: Real<*const c_char> = unsafe { Real::new(c"__libc_single_threaded") };

/// Whether there may be another thread.
pub(crate) fn is_threaded() -> bool {
    // SAFETY: a variable of the C library of one byte, which stays where it is.
    SINGLE
        .get()
        .is_none_or(|single| unsafe { single.read_volatile() } == 0)
}

/// Whether the C library reports that another thread has existed; before glibc 2.32 it does not
/// report it.
pub(crate) fn has_threads() -> bool {
    SINGLE.get().is_some() && is_threaded()
}

// SAFETY: the type matches the manual page.
static KEY_CREATE: Real<
    unsafe extern "C" fn(*mut c_uint, unsafe extern "C" fn(*mut c_void)) -> c_int,
> = unsafe { Real::new(c"pthread_key_create") };
// SAFETY: the type matches the manual page.
static SET_SPECIFIC: Real<unsafe extern "C" fn(c_uint, *const c_void) -> c_int> =
    unsafe { Real::new(c"pthread_setspecific") };

/// Registers for the ends of threads. Called before the program begins, while small keys are free.
pub(crate) fn find() {
    let is_known = KEY.load(Ordering::Relaxed) != 0;
    let Some(create) = KEY_CREATE.get().filter(|_| !is_known) else {
        return;
    };
    let mut key = 0;
    // SAFETY: writes one key; the function stays loaded until the process ends.
    let result = unsafe { create(&raw mut key, ended) };
    if result == 0 && key < SMALL_KEYS {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// A thread ends and releases its entry.
unsafe extern "C" fn ended(seat: *mut c_void) {
    free((seat as usize).wrapping_sub(1));
    own().seat.store(0, Ordering::Relaxed);
}

fn free(seat: usize) {
    if let (Some(call), Some(seat)) = (CALLS.get(seat), ROOM.get(seat)) {
        call.store(0, Ordering::Relaxed);
        seat.tid.store(0, Ordering::Release);
    }
}

/// In a forked child the other threads are gone, and this one has another id.
pub(crate) fn forget() {
    for seat in 0..TAKEN.swap(0, Ordering::Relaxed).min(SEATS) {
        free(seat);
    }
    own().seat.store(0, Ordering::Relaxed);
}

/// This thread's entry; allocated if it has none yet.
fn seat() -> Option<usize> {
    match own().seat.load(Ordering::Relaxed) {
        0 => claim_slot(),
        SEATLESS => None,
        known => Some(known - 1),
    }
}

#[cold]
fn claim_slot() -> Option<usize> {
    let tid = thread::tid();
    let free = |seat: &Seat| {
        seat.tid
            .compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    let found = ROOM.iter().position(free);
    let known = found.map_or(SEATLESS, |seat| seat + 1);
    own().seat.store(known, Ordering::Relaxed);
    let seat = found?;
    TAKEN.fetch_max(seat + 1, Ordering::AcqRel);
    let key = KEY.load(Ordering::Relaxed);
    if let Some(set) = SET_SPECIFIC.get().filter(|_| key != 0) {
        // SAFETY: one of the library's small keys; the value is a number that is never
        // dereferenced.
        let _ = unsafe { set(key - 1, (seat + 1) as *const c_void) };
    }
    Some(seat)
}

/// The call that this thread is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InflightCall {
    seat: usize,
    /// The call that it was in before: a signal handler runs within a call.
    before: u64,
}

/// Enters a call on a number of this generation.
pub(crate) fn enter(fd: u32, touch: FdCall, turn: u32) -> Option<InflightCall> {
    let seat = seat()?;
    ROOM.get(seat)?.turn.store(turn, Ordering::Relaxed);
    sit(seat, fd, touch)
}

/// Enters a call on several numbers; those that find no slot are not noted.
pub(crate) fn enter_several(fds: impl Iterator<Item = u32>, touch: FdCall) -> Option<InflightCall> {
    let seat = seat()?;
    let mut places = ROOM.get(seat)?.noted.iter();
    for fd in fds {
        let Some(place) = places.next() else {
            break;
        };
        place.store(fd, Ordering::Relaxed);
    }
    for place in places {
        place.store(SEVERAL, Ordering::Relaxed);
    }
    sit(seat, SEVERAL, touch)
}

fn sit(seat: usize, fd: u32, touch: FdCall) -> Option<InflightCall> {
    let call = CALLS.get(seat)?;
    let before = call.load(Ordering::Relaxed);
    ROOM.get(seat)?.torn.store(0, Ordering::Relaxed);
    let word = INSIDE | u64::from(touch as u8) << 32 | u64::from(fd);
    call.store(word, Ordering::Release);
    Some(InflightCall { seat, before })
}

/// Leaves the call; returns the number that was closed meanwhile.
pub(crate) fn leave(entered: InflightCall) -> Option<u32> {
    let (call, seat) = (CALLS.get(entered.seat)?, ROOM.get(entered.seat)?);
    call.store(entered.before, Ordering::Relaxed);
    seat.torn.load(Ordering::Acquire).checked_sub(1)
}

/// Reports every other thread that is inside a call on this descriptor, and marks its call.
pub(crate) fn tear(fd: u32, generation: u32, mut tell: impl FnMut(u32, u8)) {
    let taken = TAKEN.load(Ordering::Acquire).min(SEATS);
    let own = thread::tid();
    for (call, seat) in CALLS.iter().zip(&ROOM).take(taken) {
        let word = call.load(Ordering::Acquire);
        if word == 0 {
            continue;
        }
        let number = (word & 0xffff_ffff) as u32;
        let is_it = if number == SEVERAL {
            is_noted(seat, fd)
        } else {
            number == fd && seat.turn.load(Ordering::Relaxed).div_ceil(2) == generation
        };
        let tid = seat.tid.load(Ordering::Acquire);
        if is_it && tid != 0 && tid != own {
            seat.torn.store(fd.wrapping_add(1), Ordering::Release);
            tell(tid, (word >> 32 & 0xff) as u8);
        }
    }
}

/// Whether any thread is inside a call on this number.
pub(crate) fn is_inside(fd: u32) -> bool {
    let taken = TAKEN.load(Ordering::Acquire).min(SEATS);
    let mut calls = CALLS.iter().zip(&ROOM).take(taken);
    calls.any(|(call, seat)| match call.load(Ordering::SeqCst) {
        0 => false,
        word if (word & 0xffff_ffff) as u32 == SEVERAL => is_noted(seat, fd),
        word => (word & 0xffff_ffff) as u32 == fd,
    })
}

fn is_noted(seat: &Seat, fd: u32) -> bool {
    let mut noted = seat.noted.iter();
    noted.any(|noted| noted.load(Ordering::Relaxed) == fd)
}

/// The numbers that a call was entered on, if there were several; they stay until the thread's next
/// wait.
pub(crate) fn noted(entered: InflightCall) -> impl Iterator<Item = u32> {
    let seat = ROOM.get(entered.seat);
    let noted = seat.into_iter().flat_map(|seat| &seat.noted);
    noted
        .map(|noted| noted.load(Ordering::Relaxed))
        .filter(|fd| *fd != SEVERAL)
}

/// Notes that this thread closes a number. Returns whether it is closing adjacent numbers in order,
/// upward or downward.
pub(crate) fn is_row(fd: c_int) -> bool {
    let own = own();
    let number = usize::try_from(fd).unwrap_or(0);
    let before = own.closed.swap(number, Ordering::Relaxed);
    let next = |length: &AtomicUsize, is_next: bool| {
        let longer = length.load(Ordering::Relaxed).saturating_add(1);
        let now = if is_next { longer } else { 0 };
        length.store(now, Ordering::Relaxed);
        now
    };
    let up = next(&own.up, number == before.wrapping_add(1));
    let down = next(&own.down, number.wrapping_add(1) == before);
    up.max(down) >= ROW
}

/// Notes that this thread closed a number a second time.
pub(crate) fn suspect(fd: c_int) {
    let number = usize::try_from(fd).unwrap_or(0);
    own().suspect.store(number + 1, Ordering::Relaxed);
}

/// The number that was closed a second time; returned once.
pub(crate) fn take_suspect() -> Option<c_int> {
    let place = &own().suspect;
    let number = place.load(Ordering::Relaxed).checked_sub(1)?;
    place.store(0, Ordering::Relaxed);
    c_int::try_from(number).ok()
}

/// Whether this thread used this generation of the number before; from now on it has.
pub(crate) fn claim(fd: u32, turn: u32) -> bool {
    let Some(place) = own().claims.get(fd as usize % CLAIMS) else {
        return false;
    };
    let claim = u64::from(fd) << 32 | u64::from(turn) | 1 << 63;
    place.swap(claim, Ordering::Relaxed) == claim
}

#[cfg(test)]
mod tests {
    use super::{claim, enter, enter_several, forget, is_row, leave, tear};
    use fdguard_wire::FdCall;
    use std::sync::mpsc::channel;
    use std::thread;

    #[test]
    fn a_closer_sees_who_is_inside_and_who_is_inside_learns_of_it() {
        let (entered, is_in) = channel();
        let (closed, is_closed) = channel();
        let worker = thread::spawn(move || {
            let call = enter(11, FdCall::Recv, 5).unwrap();
            entered.send(()).unwrap();
            is_closed.recv().unwrap();
            leave(call)
        });
        is_in.recv().unwrap();
        let mut found = Vec::new();
        tear(11, 2, |_, code| found.push(code));
        tear(12, 3, |_, code| found.push(code));
        assert!(found.is_empty(), "another generation, another number");
        tear(11, 3, |_, code| found.push(code));
        closed.send(()).unwrap();
        assert_eq!(found, [FdCall::Recv as u8]);
        assert_eq!(worker.join().unwrap(), Some(11));
        tear(11, 3, |_, code| found.push(code));
        assert_eq!(found.len(), 1, "it left");
    }

    #[test]
    fn nobody_is_its_own_stranger_and_a_handler_restores_the_call_it_came_into() {
        forget();
        let outer = enter_several([3, 4].into_iter(), FdCall::Poll).unwrap();
        let inner = enter(7, FdCall::Write, 1).unwrap();
        assert_eq!(leave(inner), None);
        let worker = thread::spawn(|| {
            let mut found = Vec::new();
            tear(4, 9, |_, code| found.push(code));
            found
        });
        assert_eq!(worker.join().unwrap(), [FdCall::Poll as u8]);
        tear(3, 1, |_, _| panic!("our own call"));
        assert_eq!(leave(outer), Some(4));
    }

    #[test]
    fn who_closes_one_number_after_the_other_closes_a_row() {
        let rows = [10, 11, 12, 13, 14, 9, 8, 7, 6].map(is_row);
        let expected = [false, false, false, true, true, false, false, false, true];
        assert_eq!(rows, expected);
        assert_eq!(
            [20, 21, 20, 21, 20].map(is_row),
            [false; 5],
            "two ends, twice"
        );
    }

    #[test]
    fn a_descriptor_is_claimed_once_until_the_number_is_given_out_again() {
        assert!(!claim(9, 1));
        assert!(claim(9, 1));
        assert!(!claim(9, 3));
        assert!(!claim(9 + 64, 1), "the same place");
        assert!(!claim(9, 3));
    }
}
