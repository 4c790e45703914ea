//! The real functions: the next definitions of their names after the interposed ones.

#![expect(unsafe_code, reason = "asks the loader for functions and calls them")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::attach::scope;
use crate::{loader, sys};

const RTLD_NEXT: *mut c_void = -1_isize as *mut c_void;

/// The next definition of a name; null if there is none.
#[cold]
#[inline(never)]
fn look_up(name: &CStr) -> *mut c_void {
    if !scope::is_found() && loader::has_dlsym() {
        return loader::dlsym(RTLD_NEXT, name);
    }
    // Without dlsym the modules behind this one are searched in the loader's order, too.
    if !scope::find() {
        return core::ptr::null_mut();
    }
    scope::address(name)
}

/// Whether the library was loaded with the program: only then are there definitions after its own.
/// The library itself needs no other, so none of its own comes after it.
pub(crate) fn is_preloaded() -> bool {
    // Nothing can be loaded later into a process without dlsym.
    !loader::has_dlsym() || !loader::dlsym(RTLD_NEXT, c"getenv").is_null()
}

/// A function of the C library, looked up when it is first needed. `F` is the type of a function
/// pointer.
#[derive(Debug)]
pub(crate) struct Real<F> {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
    kind: PhantomData<F>,
}

// SAFETY: function pointers may be used from every thread, and the rest is an atomic.
unsafe impl<F> Sync for Real<F> {}

impl<F: Copy> Real<F> {
    /// # Safety
    /// `F` must be the type of the function of this name, as an `unsafe extern "C" fn`.
    pub(crate) const unsafe fn new(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        Self {
            name,
            found: AtomicPtr::new(core::ptr::null_mut()),
            kind: PhantomData,
        }
    }

    /// The function, if it exists.
    pub(crate) fn get(&self) -> Option<F> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            found = look_up(self.name);
            if found.is_null() {
                return None;
            }
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: the caller of `new` guarantees that F is the pointer type of the function of this
        // name.
        Some(unsafe { core::mem::transmute_copy(&found) })
    }
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

// SAFETY: the type matches POSIX on x86-64.
static CLOCK: Real<unsafe extern "C" fn(c_int, *mut Timespec) -> c_int> =
    unsafe { Real::new(c"clock_gettime") };

/// The monotonic clock in nanoseconds. The C library reads the kernel's shared page.
pub(crate) fn now() -> u64 {
    let Some(clock) = CLOCK.get() else {
        return sys::clock(1);
    };
    let mut time = Timespec {
        seconds: 0,
        nanos: 0,
    };
    // SAFETY: the function writes the one timespec passed.
    let _ = unsafe { clock(1, &raw mut time) };
    sys::nanoseconds(time.seconds, time.nanos)
}

static STACK_END: Real<*const *const c_void> =
    // SAFETY: not a function: the loader's variable with the top of the first thread's stack. Only
    // its address is taken.
    unsafe { Real::new(c"__libc_stack_end") };

/// The top of the first thread's stack; 0 if the C library does not export it.
pub(crate) fn stack_end() -> usize {
    let Some(place) = STACK_END.get() else {
        return 0;
    };
    // SAFETY: the variable is the loader's, written before any code of the program runs.
    unsafe { place.read() as usize }
}

static PROGRAM_NAME: Real<*const *const c_char> =
    // SAFETY: not a function: the C library's variable with the program's name. Only its address is
    // taken.
    unsafe { Real::new(c"program_invocation_short_name") };

/// The first 15 bytes of the program's name, without a system call; zeros if the C library does not
/// export it.
pub(crate) fn program_name() -> [u64; 2] {
    let mut name = [0_u8; 16];
    let Some(place) = PROGRAM_NAME.get() else {
        return [0; 2];
    };
    // SAFETY: the variable is the C library's, set before any code of the program runs.
    let text = unsafe { place.read() };
    if text.is_null() {
        return [0; 2];
    }
    for (index, letter) in name.iter_mut().take(15).enumerate() {
        let place = text.wrapping_add(index);
        // SAFETY: a C string, of which no byte behind its null is read.
        let byte = unsafe { place.read() }.cast_unsigned();
        if byte == 0 {
            break;
        }
        *letter = byte;
    }
    let (first, second) = name.split_at(8);
    [first, second].map(|half| u64::from_ne_bytes(half.try_into().unwrap_or_default()))
}
