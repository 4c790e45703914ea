//! The real functions of a library that came by `dlopen`: the definitions that the program itself
//! is bound to.
//!
//! A preloaded library asks the loader for the next definition of a name, but one that was loaded
//! later is not in that order. So the modules in front of the C library are searched in the order
//! of the loader, which is the order of the global scope: somebody else's preloaded library comes
//! first and stays in the chain. The program itself is left out: its symbol of such a name is its
//! own function, or the entry of its table that leads to the hook. Modules loaded with the program
//! are never unloaded, so their tables are kept and asked without a lock.

#![expect(
    unsafe_code,
    reason = "keeps tables in a static that is written before it is shared"
)]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use super::loaded::{self, NEXT, STOP};
use crate::symbols::Symbols;

/// The most modules in front of the C library.
const MOST: usize = 64;

/// The modules that are searched.
struct Scope {
    modules: UnsafeCell<[Option<Symbols>; MOST]>,
    /// Whether a thread collects them, or has.
    is_begun: AtomicU32,
    is_found: AtomicU32,
}

// SAFETY: written once, by the one thread that found `is_begun` at 0, and read only after
// `is_found`.
unsafe impl Sync for Scope {}

static SCOPE: Scope = Scope {
    modules: UnsafeCell::new([None; MOST]),
    is_begun: AtomicU32::new(0),
    is_found: AtomicU32::new(0),
};

/// Whether the modules are known.
#[inline]
pub(crate) fn is_found() -> bool {
    SCOPE.is_found.load(Ordering::Acquire) != 0
}

fn modules() -> &'static [Option<Symbols>] {
    if !is_found() {
        return &[];
    }
    let modules = SCOPE.modules.get();
    // SAFETY: nothing writes after `is_found`.
    unsafe { &*modules }
}

/// Collects the modules up to the C library, and the loader. False if there is no C library, or if
/// another thread is about to collect them.
pub(crate) fn find() -> bool {
    if is_found() || SCOPE.is_begun.swap(1, Ordering::AcqRel) != 0 {
        return is_found();
    }
    let place = SCOPE.modules.get();
    // SAFETY: no other thread reads before `is_found`, and none writes after `is_begun`.
    let found = unsafe { &mut *place };
    let mut used = 0;
    let (mut has_library, mut has_loader) = (false, false);
    loaded::each(|module| {
        let symbols = module.symbols().filter(|_| module.index > 0);
        let Some(symbols) = symbols.filter(|symbols| !super::is_copy(module, symbols)) else {
            return NEXT;
        };
        let is_library = !symbols.find(c"gnu_get_libc_version").is_null();
        let is_loader = !symbols.find(c"_r_debug").is_null();
        // Behind the C library only the loader counts.
        if !has_library || is_loader {
            let Some(place) = found.get_mut(used) else {
                return STOP;
            };
            *place = Some(symbols);
            used += 1;
        }
        has_library |= is_library;
        has_loader |= is_loader;
        if has_library && has_loader {
            STOP
        } else {
            NEXT
        }
    });
    SCOPE
        .is_found
        .store(u32::from(has_library), Ordering::Release);
    if !has_library {
        SCOPE.is_begun.store(0, Ordering::Release);
    }
    has_library
}

/// The address of a function or variable; null if no module defines it.
pub(crate) fn address(name: &CStr) -> *mut c_void {
    let all = modules().iter().flatten();
    let mut found = all.map(|symbols| symbols.find(name));
    let found = found.find(|address| !address.is_null());
    found.map_or(core::ptr::null_mut(), <*const c_void>::cast_mut)
}

/// The address and the size of a variable.
pub(super) fn extent(name: &CStr) -> Option<(usize, usize)> {
    let mut all = modules().iter().flatten();
    all.find_map(|symbols| symbols.extent(name))
}

/// Whether an address is in one of these modules.
pub(super) fn contains(address: usize) -> bool {
    let mut all = modules().iter().flatten();
    all.any(|symbols| symbols.contains(address))
}

/// Whether these are the symbols of the C library or of the loader, which call their own functions
/// without a table.
pub(super) fn is_library(symbols: &Symbols) -> bool {
    [c"gnu_get_libc_version", c"_r_debug"]
        .into_iter()
        .any(|name| !symbols.find(name).is_null())
}
