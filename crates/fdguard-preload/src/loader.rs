//! The loader's functions that the library uses, if the process has them.
//!
//! Before glibc 2.34 `dlsym` is in a library that many programs do not load (libdl). A reference
//! that must be resolved would keep such a program from starting. So the references are weak, and
//! the addresses are read from the library's own table: the compiler takes it for granted that a
//! function has an address.

#![expect(
    unsafe_code,
    reason = "reads addresses that the loader wrote, and calls them"
)]

use core::arch::{asm, global_asm};
use core::ffi::{CStr, c_char, c_void};

global_asm!(".weak dlsym", ".weak dl_iterate_phdr");

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

fn dlsym_address() -> *mut c_void {
    let address;
    // SAFETY: reads one word of the library's table, which the loader filled before any code ran.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + dlsym@GOTPCREL]",
            out(reg) address,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    address
}

/// The address of `dl_iterate_phdr`; null if there is none.
pub(crate) fn iterate_address() -> *mut c_void {
    let address;
    // SAFETY: as above.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + dl_iterate_phdr@GOTPCREL]",
            out(reg) address,
            options(pure, readonly, nostack, preserves_flags)
        );
    }
    address
}

/// Whether the process has `dlsym`.
pub(crate) fn has_dlsym() -> bool {
    !dlsym_address().is_null()
}

/// Asks the loader for a symbol; null if it has none, or if nobody can be asked.
pub(crate) fn dlsym(handle: *mut c_void, name: &CStr) -> *mut c_void {
    let address = dlsym_address();
    if address.is_null() {
        return address;
    }
    // SAFETY: the function of this name has this type.
    let dlsym = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(address) };
    // SAFETY: the name is a C string; the loader may be called at any time after it loaded this
    // library.
    unsafe { dlsym(handle, name.as_ptr()) }
}
