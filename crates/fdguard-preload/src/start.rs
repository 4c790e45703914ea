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

/// The folder for the mappings; nothing is recorded without it.
const DIR: &CStr = c"FDGUARD_TRACE_DIR";

/// Which parts of the mapping may be written to.
pub(crate) static GROUND: Backing = Backing::new();

static MAPPING: AtomicPtr<TableMapping> = AtomicPtr::new(core::ptr::null_mut());
/// Whether somebody has begun to make the first one.
static BEGUN: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
}

type Handler = Option<unsafe extern "C" fn()>;
// SAFETY: the type of the function that `pthread_atfork` of glibc calls; it is exported since
// 2.3.2.
static AT_FORK: Real<unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int> =
    unsafe { Real::new(c"__register_atfork") };

/// The mapping, when the caller belongs to its process. A child of `vfork` runs in our memory, and
/// a child that was made past the C library has a copy of it: what they do happens to another
/// table.
#[inline]
pub(crate) fn mapping() -> Option<&'static TableMapping> {
    let mapping = current().or_else(first)?;
    if !owner::is_here() {
        mapping.foreign_call();
        return None;
    }
    Some(mapping)
}

/// There is none, or not yet.
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

/// The mapping, whoever asks.
#[inline]
pub(crate) fn current() -> Option<&'static TableMapping> {
    let mapping = MAPPING.load(Ordering::Acquire);
    // SAFETY: null or a mapping of this size, page-aligned, all atomics, zeroed by the kernel. It
    // is unmapped only in a forked child, which has one thread, after this pointer was replaced.
    unsafe { mapping.as_ref() }
}

/// The mapping of a program whose seccomp filter leaves us nothing: only losses are counted in it.
static SILENT: AtomicPtr<TableMapping> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a forked child may not have a mapping of its own, for the same reason.
static IS_BARREN: AtomicU32 = AtomicU32::new(0);

/// Whether the program locked itself up, in whatever way.
static IS_FILTERED: AtomicU32 = AtomicU32::new(0);

/// Whether the program has seccomp filters: a call that was not asked for when they came may end
/// it.
pub(crate) fn is_filtered() -> bool {
    IS_FILTERED.load(Ordering::Relaxed) != 0
}

/// What the program's seccomp filters leave us.
#[derive(Clone, Copy)]
pub(crate) struct StartOptions {
    /// To record.
    pub(crate) recording: bool,
    /// To make a mapping for a forked child.
    pub(crate) beginning: bool,
}

/// From now on no more than this; gives what was allowed before.
pub(crate) fn restrict(allowed: StartOptions) -> StartOptions {
    let before = StartOptions {
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

/// The restriction did not come to be.
pub(crate) fn allow(before: StartOptions) {
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
    // SAFETY: as in `current`; a child forgets the pointer and unmaps nothing.
    if let Some(mapping) = unsafe { SILENT.load(Ordering::Acquire).as_ref() } {
        mapping.lose_event();
    }
}

/// Whether anything is recorded.
pub(crate) fn is_on() -> bool {
    !MAPPING.load(Ordering::Relaxed).is_null()
}

/// Makes the first mapping of this program. Called by the loader, or by a hook that is called even
/// earlier.
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
            // SAFETY: the handler stays as long as we are loaded, which is to the end: preloaded
            // objects are not unloaded.
            let _ = unsafe { register(None, None, Some(forked), core::ptr::null_mut()) };
        }
    }
    errno::store(error);
}

/// Looks for what may not be there. The loader allocates to say so: by the loader's own call alone,
/// never in a hook, which an allocator may call while it begins.
pub(crate) fn look_around() {
    let error = errno::load();
    language::find();
    inflight::find();
    errno::store(error);
}

/// A new mapping for this process, in place of the one before.
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

/// In a forked child: a table of its own that begins with the parent's.
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
    // SAFETY: the name is a C string; the risk of a program that changes its environment meanwhile
    // is the C library's own.
    let value = unsafe { getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` gives a C string.
    Some(unsafe { CStr::from_ptr(value) }.to_bytes())
}

/// `FOLDER/PID-BEGAN` with this ending, which ends with a zero.
pub(crate) fn path<'b>(
    buffer: &'b mut [u8; 4096],
    pid: u32,
    began: u64,
    ending: &[u8],
) -> Option<&'b CStr> {
    // SAFETY: the name is a C string; nobody changes the environment while the loader runs us, and
    // what a program with threads does to it later is the risk that the C library's own use of it
    // takes.
    let dir = unsafe { getenv(DIR.as_ptr()) };
    if dir.is_null() {
        return None;
    }
    // SAFETY: `getenv` gives a C string.
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

/// Bytes put together without allocating.
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
