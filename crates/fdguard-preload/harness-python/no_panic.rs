//! The walk without std and alloc. A panic that the compiler cannot rule out would reference a
//! symbol of `core::panicking`; `tests/matrix.rs` looks for one among the undefined symbols.
#![no_std]

use core::ffi::{CStr, c_char, c_void};

#[path = "../src/python/mod.rs"]
mod python;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// # Safety
///
/// `out` has room for `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdguard_all_of_it(out: *mut u8, room: usize) -> usize {
    let search = |name: &CStr| {
        // SAFETY: RTLD_DEFAULT and a C string.
        unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) }.cast_const()
    };
    // SAFETY: dlsym itself; the interpreter is not unloaded.
    let Ok(found) = (unsafe { python::Runtime::find(search) }) else {
        return found_version(0);
    };
    let mut frames = [python::RawFrame::default(); 64];
    let Some(walked) = found.walk(&mut frames) else {
        return found_version(found.version());
    };
    // SAFETY: guaranteed by the caller.
    let out = unsafe { core::slice::from_raw_parts_mut(out, room) };
    found.render(&frames, &walked, out)
}

fn found_version(version: u32) -> usize {
    version as usize
}
