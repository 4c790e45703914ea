//! The life of a mapping: created before the program's first instruction and in each forked child.

#![expect(
    unsafe_code,
    reason = "turns the mapped file into a reference, and registers with the C library"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use fdguard_wire::TableMapping;

use crate::attach::request;
use crate::backing::Backing;
use crate::real::Real;
use crate::why::pause;
use crate::{
    attach, children, close_sweep, creator, errno, inflight, java, language, lock, modules, owner,
    protect, real, sys, thread, unwind, walkers,
};

/// The directory for the mappings; nothing is recorded without it.
const DIR: &CStr = c"FDGUARD_TRACE_DIR";

/// The parts of the mapping that may be written to.
pub(crate) static GROUND: Backing = Backing::new();

static MAPPING: AtomicPtr<TableMapping> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a thread has begun to create the first one.
static BEGUN: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

type Handler = Option<unsafe extern "C" fn()>;
// SAFETY: the type matches the function that glibc's `pthread_atfork` calls; it is exported since
// 2.3.2.
static AT_FORK: Real<unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int> =
    unsafe { Real::new(c"__register_atfork") };

/// The mapping, if the caller belongs to its process. A `vfork` child runs in this memory, and a
/// child created without the C library has a copy of it: both act on another descriptor table.
#[inline]
pub(crate) fn mapping() -> Option<&'static TableMapping> {
    let mapping = current().or_else(first)?;
    if !owner::is_here() {
        mapping.foreign_call();
        return None;
    }
    Some(mapping)
}

/// There is no mapping, or not yet.
#[cold]
#[inline(never)]
fn first() -> Option<&'static TableMapping> {
    if BEGUN.load(Ordering::Relaxed) == 0 {
        start();
    }
    let found = current();
    if found.is_none() {
        lose_in_silence();
    }
    found
}

/// The mapping, whichever process asks.
#[inline]
pub(crate) fn current() -> Option<&'static TableMapping> {
    let mapping = MAPPING.load(Ordering::Acquire);
    // SAFETY: null or a mapping of this size, page-aligned, all atomics, zeroed by the kernel. It
    // is unmapped only in a forked child, which has one thread, after this pointer was replaced.
    unsafe { mapping.as_ref() }
}

/// The mapping of a program whose seccomp filter forbids recording: only losses are counted in it.
static SILENT: AtomicPtr<TableMapping> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a forked child cannot have a mapping of its own, for the same reason.
static IS_BARREN: AtomicU32 = AtomicU32::new(0);

/// Whether the program installed any seccomp restriction.
static IS_FILTERED: AtomicU32 = AtomicU32::new(0);

/// Whether the program has seccomp filters: a call that was not checked when they were installed
/// may kill it.
pub(crate) fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed) != 0
}

/// What the program's seccomp filters allow the library.
#[derive(Clone, Copy)]
pub(crate) struct AllowedCalls {
    /// To record.
    pub(crate) recording: bool,
    /// To create a mapping for a forked child.
    pub(crate) beginning: bool,
}

/// Allows no more than this from now on; returns what was allowed before.
pub(crate) fn restrict(allowed: AllowedCalls) -> AllowedCalls {
    let before = AllowedCalls {
        recording: is_on(),
        beginning: IS_BARREN.load(Ordering::Relaxed) == 0,
    };
    if !allowed.beginning {
        IS_BARREN.store(1, Ordering::Relaxed);
    }
    IS_FILTERED.store(1, Ordering::Relaxed);
    if !allowed.recording {
        let mapping = MAPPING.swap(core::ptr::null_mut(), Ordering::AcqRel);
        SILENT.store(mapping, Ordering::Release);
    }
    before
}

/// The filter was not installed: restores what was allowed before.
pub(crate) fn allow(before: AllowedCalls) {
    if before.beginning {
        IS_BARREN.store(0, Ordering::Relaxed);
    }
    let silent = SILENT.swap(core::ptr::null_mut(), Ordering::AcqRel);
    if before.recording && !silent.is_null() {
        MAPPING.store(silent, Ordering::Release);
    }
}

#[cold]
fn lose_in_silence() {
    // SAFETY: as in `current`; a child drops the pointer and unmaps nothing.
    if let Some(mapping) = unsafe { SILENT.load(Ordering::Acquire).as_ref() } {
        mapping.lose_event();
    }
}

/// Whether the stack of every use is recorded.
static RECORDS_USERS: AtomicU32 = AtomicU32::new(0);
/// The variable that asks for it.
const USERS: &CStr = c"FDGUARD_USERS";

/// Whether the stack of every use is recorded.
#[inline]
pub(crate) fn records_users() -> bool {
    RECORDS_USERS.load(Ordering::Relaxed) != 0
}

/// Whether anything is recorded.
pub(crate) fn is_on() -> bool {
    !MAPPING.load(Ordering::Relaxed).is_null()
}

/// Where the mappings of one recording after the other are. A thread that was inside a hook when a
/// recording ended writes to its place, which is used again only after some others.
static PLACES: [AtomicUsize; 4] = [const { AtomicUsize::new(0) }; 4];
static TURN: AtomicUsize = AtomicUsize::new(0);

/// Creates the first mapping of this program. Called by the loader, or by a hook that is called
/// even earlier.
pub(crate) extern "C" fn start() {
    if BEGUN.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    let error = errno::load();
    modules::find_own();
    if let Some(mapping) = create() {
        for (index, first) in (0..1024).step_by(64).enumerate() {
            mapping.inherit_numbers(&GROUND, index, sys::open_numbers(first));
        }
        register_fork();
    }
    errno::store(error);
}

fn register_fork() {
    static IS_DONE: AtomicU32 = AtomicU32::new(0);
    if let Some(register) = AT_FORK.get()
        && IS_DONE.swap(1, Ordering::Relaxed) == 0
    {
        // SAFETY: the handler stays loaded until the process ends: the library is never unloaded.
        let _ = unsafe { register(None, None, Some(forked), core::ptr::null_mut()) };
    }
}

/// No hook creates a mapping by itself.
pub(crate) fn wait_for_request() {
    BEGUN.store(1, Ordering::Relaxed);
}

/// Creates a mapping in a running program, which may have had others before.
pub(crate) fn attach() -> Option<&'static TableMapping> {
    // Modules may have been unloaded since the last recording.
    unwind::forget();
    language::unloaded(language::unloading());
    lock::forget();
    children::forget();
    close_sweep::forget();
    creator::forget();
    let mapping = create()?;
    mapping.attach();
    register_fork();
    Some(mapping)
}

/// Everything that is open and was not recorded was opened before the attach. Called when the hooks
/// are already in place, so that nothing falls in between.
pub(crate) fn inherit_open(mapping: &TableMapping) {
    sys::each_open(|first, bits| {
        let mut before = bits;
        for bit in 0..64 {
            if mapping.turn(&GROUND, first + bit) != 0 || protect::is_stone(first + bit) {
                before &= !(1 << bit);
            }
        }
        mapping.inherit_numbers(&GROUND, first as usize / 64, before);
    });
}

/// Ends the recording at `now`. Threads inside a hook may still write to the mapping: the file is
/// replaced by memory that nobody reads.
pub(crate) fn detach(now: u64) {
    let recorded = MAPPING.swap(core::ptr::null_mut(), Ordering::AcqRel);
    let silent = SILENT.swap(core::ptr::null_mut(), Ordering::AcqRel);
    creator::release();
    for mapping in [recorded, silent] {
        // SAFETY: as in `current`; it is replaced below and not before.
        if let Some(ended) = unsafe { mapping.as_ref() } {
            ended.end(now);
            sys::replace_mapping(mapping);
        }
    }
}

/// Looks up symbols that may not exist. For a missing one the loader allocates, so this is called
/// only by the loader, never in a hook, which an allocator may call while it initialises.
pub(crate) fn look_around() {
    let error = errno::load();
    language::find();
    inflight::find();
    errno::store(error);
}

/// A new mapping for this process, which replaces the one before.
fn create() -> Option<&'static TableMapping> {
    let pid = sys::process();
    let (monotonic, wall) = (sys::clock(1), sys::clock(0));
    let mut buffer = [0; 4096];
    let path = path(&mut buffer, pid, monotonic, b".fdguard\0")?;
    let place = PLACES.get(TURN.load(Ordering::Relaxed) % PLACES.len())?;
    let mapping = if attach::is_late() && !attach::is_child() {
        TURN.fetch_add(1, Ordering::Relaxed);
        // If this fails, nobody knows what is at the place then, and it is not used again.
        let mapping = sys::new_mapping(path, place.swap(0, Ordering::Relaxed))?;
        place.store(mapping as usize, Ordering::Relaxed);
        owner::adopt_running(pid);
        mapping
    } else {
        owner::adopt(pid);
        sys::new_mapping(path, 0)?
    };
    let is_wanted = setting(USERS, &mut [0; 8]).is_some();
    RECORDS_USERS.store(u32::from(is_wanted), Ordering::Relaxed);
    GROUND.reset(mapping as usize);
    MAPPING.store(mapping, Ordering::Release);
    let mapping = current()?;
    mapping.name(real::program_name());
    mapping.begin(pid, monotonic, wall);
    Some(mapping)
}

/// In a forked child: a table of its own that starts as a copy of the parent's.
unsafe extern "C" fn forked() {
    let error = errno::load();
    attach::forked();
    thread::forget();
    inflight::forget();
    lock::forget();
    children::forget();
    close_sweep::forget();
    java::forget();
    walkers::forget();
    creator::forget();
    pause::forked();
    let old = MAPPING.swap(core::ptr::null_mut(), Ordering::AcqRel);
    SILENT.store(core::ptr::null_mut(), Ordering::Release);
    if IS_BARREN.load(Ordering::Relaxed) != 0 {
        protect::forked();
        errno::store(error);
        return;
    }
    // SAFETY: as in `current`; it is unmapped below and not before.
    let before = unsafe { old.as_ref() };
    if let Some(before) = before {
        let known = GROUND.known();
        if let Some(mapping) = create() {
            mapping.inherit(&GROUND, (before, &known));
        }
        for place in &PLACES {
            // It is given up below.
            let _ = place.compare_exchange(old as usize, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        sys::unmap(old);
    }
    protect::forked();
    errno::store(error);
}

/// The value of a variable that tells the library what to do, copied because the program may change
/// its environment. `None` if it is not set or does not fit.
pub(crate) fn setting<'b>(name: &CStr, into: &'b mut [u8]) -> Option<&'b [u8]> {
    if attach::is_late() {
        return request::variable(name, into);
    }
    let value = variable(name)?;
    let room = into.get_mut(..value.len())?;
    for (place, byte) in room.iter_mut().zip(value) {
        *place = *byte;
    }
    Some(room)
}

/// The value of a variable of the program's environment.
pub(crate) fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is a C string; a program that changes its environment meanwhile takes the
    // same risk with the C library itself.
    let value = unsafe { getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returns a C string.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// `DIR/PID-BEGAN` with this ending, which ends with a null.
pub(crate) fn path<'b>(
    buffer: &'b mut [u8; 4096],
    pid: u32,
    began: u64,
    ending: &[u8],
) -> Option<&'b CStr> {
    let mut text = Text { buffer, used: 0 };
    text.push_dir()?;
    text.push(b"/")?;
    text.number(u64::from(pid))?;
    text.push(b"-")?;
    text.number(began)?;
    text.push(ending)?;
    let Text { buffer, used } = text;
    CStr::from_bytes_until_nul(buffer.get(..used)?).ok()
}

/// The directory for the mappings with this ending, which ends with a null.
pub(crate) fn dir<'b>(buffer: &'b mut [u8; 4096], ending: &[u8]) -> Option<&'b CStr> {
    let mut text = Text { buffer, used: 0 };
    text.push_dir()?;
    text.push(ending)?;
    let Text { buffer, used } = text;
    CStr::from_bytes_until_nul(buffer.get(..used)?).ok()
}

/// Bytes concatenated without allocating.
pub(crate) struct Text<'a> {
    pub(crate) buffer: &'a mut [u8; 4096],
    pub(crate) used: usize,
}

impl Text<'_> {
    /// The directory for the mappings, at the beginning.
    fn push_dir(&mut self) -> Option<()> {
        if attach::is_late() {
            self.used = request::dir(&mut *self.buffer)?.len();
            return Some(());
        }
        self.push(variable(DIR)?)
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<()> {
        for byte in bytes {
            *self.buffer.get_mut(self.used)? = *byte;
            self.used += 1;
        }
        Some(())
    }

    pub(crate) fn number(&mut self, number: u64) -> Option<()> {
        let mut digits = [0; 20];
        let mut left = number;
        let mut from = digits.len();
        loop {
            from = from.checked_sub(1)?;
            *digits.get_mut(from)? = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.push(digits.get(from..)?)
    }
}
