//! The life of a mapping: created before the program's first instruction and in each forked child.

#![expect(
    unsafe_code,
    reason = "turns the mapped file into a reference, and registers with the C library"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use fdguard_wire::TableMapping;

use crate::backing::Backing;
use crate::real::Real;
use crate::{
    children, close_sweep, creator, errno, inflight, java, language, lock, modules, owner, protect,
    real, sys, thread, walkers,
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

/// Whether anything is recorded.
pub(crate) fn is_on() -> bool {
    !MAPPING.load(Ordering::Relaxed).is_null()
}

/// Creates the first mapping of this program. Called by the loader, or by a hook that is called
/// even earlier.
pub(crate) extern "C" fn start() {
    if BEGUN.swap(1, Ordering::AcqRel) != 0 {
        return;
    }
    let error = errno::load();
    modules::find_own();
    if let Some(mapping) = create() {
        for (first, word) in (0..).step_by(64).zip(&mapping.header.inherited) {
            word.store(sys::open_numbers(first), Ordering::Relaxed);
        }
        if let Some(register) = AT_FORK.get() {
            // SAFETY: the handler stays loaded until the process ends: preloaded objects are not
            // unloaded.
            let _ = unsafe { register(None, None, Some(forked), core::ptr::null_mut()) };
        }
    }
    errno::store(error);
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
    let mapping = sys::new_mapping(path)?;
    GROUND.reset(mapping as usize);
    owner::adopt(pid);
    MAPPING.store(mapping, Ordering::Release);
    let mapping = current()?;
    mapping.name(real::program_name());
    mapping.begin(pid, monotonic, wall);
    Some(mapping)
}

/// In a forked child: a table of its own that starts as a copy of the parent's.
unsafe extern "C" fn forked() {
    let error = errno::load();
    thread::forget();
    inflight::forget();
    lock::forget();
    children::forget();
    close_sweep::forget();
    java::forget();
    walkers::forget();
    creator::forget();
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
        sys::unmap(old);
    }
    protect::forked();
    errno::store(error);
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
    // SAFETY: the name is a C string; no code changes the environment while the loader runs this,
    // and a multi-threaded program that changes it later takes the same risk with the C library
    // itself.
    let dir = unsafe { getenv(DIR.as_ptr()) };
    if dir.is_null() {
        return None;
    }
    // SAFETY: `getenv` returns a C string.
    let dir = unsafe { CStr::from_ptr(dir) };
    let mut text = Text { buffer, used: 0 };
    text.push(dir.to_bytes())?;
    text.push(b"/")?;
    text.number(u64::from(pid))?;
    text.push(b"-")?;
    text.number(began)?;
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
