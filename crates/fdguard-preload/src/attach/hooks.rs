//! The hook of a name: the library's own function of that name. The table of names is the one that
//! it exports, so a new hook is in it by itself.

#![expect(
    unsafe_code,
    reason = "keeps the library's own symbols in a static that is written before it is shared"
)]

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use super::loaded::{self, NEXT, STOP};
use super::{scope, tick};
use crate::symbols::{Symbols, hash_of};

struct Own {
    symbols: UnsafeCell<Option<Symbols>>,
    is_found: AtomicU32,
}

// SAFETY: written once, by the one thread that attaches, and read only after `is_found`.
unsafe impl Sync for Own {}

static OWN: Own = Own {
    symbols: UnsafeCell::new(None),
    is_found: AtomicU32::new(0),
};

/// Finds the library's own symbols. Only the thread that attaches may call this.
pub(super) fn find_own() -> bool {
    if OWN.is_found.load(Ordering::Acquire) != 0 {
        return true;
    }
    let here = find_own as fn() -> bool as usize;
    let mut found = None;
    loaded::each(|module| {
        if !module.contains(here) {
            return NEXT;
        }
        found = module.symbols();
        crate::modules::set_own(module.range);
        STOP
    });
    let place = OWN.symbols.get();
    // SAFETY: no other thread reads before `is_found`, and one thread at a time attaches.
    unsafe { place.write(found) };
    OWN.is_found
        .store(u32::from(found.is_some()), Ordering::Release);
    found.is_some()
}

fn own() -> Option<&'static Symbols> {
    if OWN.is_found.load(Ordering::Acquire) == 0 {
        return None;
    }
    let symbols = OWN.symbols.get();
    // SAFETY: nothing writes after `is_found`.
    unsafe { &*symbols }.as_ref()
}

/// Whether a symbol with this hash, whose lowest bit is not known, may be the name of a hook.
pub(super) fn may_be_hooked(hash: u32) -> bool {
    const DLSYM: u32 = hash_of(b"dlsym");
    hash | 1 == DLSYM | 1 || own().is_some_and(|own| own.may_define(hash))
}

/// The addresses of the hook of this name and of the real function; `None` if it is not interposed
/// or the C library does not have it.
pub(super) fn find(name: &CStr) -> Option<(usize, usize)> {
    let plain = own()?.find(name) as usize;
    let bytes = name.to_bytes();
    // The library's own entries, and what the compiler needs.
    let is_interposed = !bytes.starts_with(b"fdguard_") && bytes != b"rust_eh_personality";
    if !is_interposed || (plain == 0 && bytes != b"dlsym") {
        return None;
    }
    let hook = tick::hook(bytes).unwrap_or(plain);
    let real = scope::address(name) as usize;
    (real != 0).then_some((hook, real))
}
