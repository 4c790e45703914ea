//! The files whose code is mapped, by address: unwind tables for the unwinder, paths for the
//! reader.

#![expect(unsafe_code, reason = "reads what the loader answers")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use fdguard_wire::{Area, TableMapping};

use crate::real::Real;
use crate::symbols::Symbols;
use crate::sys;

/// What the loader reports about an address; `struct dl_find_object` of glibc 2.35.
#[repr(C)]
struct LoadedObject {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    link_map: *mut LinkMap,
    eh_frame_header: *mut c_void,
    reserved: [u64; 7],
}

/// The public part at the start of `struct link_map`.
#[repr(C)]
struct LinkMap {
    bias: usize,
    name: *const c_char,
    dynamic: *const c_void,
}

// SAFETY: the type matches <dlfcn.h>.
static FIND: Real<unsafe extern "C" fn(*mut c_void, *mut LoadedObject) -> c_int> =
    unsafe { Real::new(c"_dl_find_object") };

/// The address range of the library's own code, whose frames are not shown.
static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

/// The module that contains an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module {
    /// First address.
    pub(crate) start: usize,
    /// One past the last address.
    pub(crate) end: usize,
    /// The offset between addresses in the file and in memory.
    pub(crate) bias: usize,
    /// The table for unwinding; 0 if it has none.
    pub(crate) eh_frame_header: usize,
    name: *const c_char,
    dynamic: usize,
}

impl Module {
    /// Its own symbols. The module must still be loaded.
    pub(crate) fn symbols(&self) -> Option<Symbols> {
        // SAFETY: the loader reported this section for this module, whose code is on the stack or
        // which the caller keeps loaded.
        unsafe { Symbols::of(self.dynamic, self.bias, (self.start, self.end)) }
    }
}

/// The module that contains an address. glibc answers without a lock since 2.35; older versions are
/// not asked.
pub(crate) fn find(address: usize) -> Option<Module> {
    let find = FIND.get()?;
    let mut found = LoadedObject {
        flags: 0,
        start: core::ptr::null_mut(),
        end: core::ptr::null_mut(),
        link_map: core::ptr::null_mut(),
        eh_frame_header: core::ptr::null_mut(),
        reserved: [0; 7],
    };
    // SAFETY: the loader writes the one structure passed; it reads nothing through the address.
    let missing = unsafe { find(address as *mut c_void, &raw mut found) };
    if missing != 0 || found.link_map.is_null() {
        return None;
    }
    // SAFETY: the loader's own list; the module stays loaded while its code is on the stack.
    let map = unsafe { found.link_map.read() };
    Some(Module {
        start: found.start as usize,
        end: found.end as usize,
        bias: map.bias,
        eh_frame_header: found.eh_frame_header as usize,
        name: map.name,
        dynamic: map.dynamic as usize,
    })
}

/// Whether two addresses are known to be in one module.
pub(crate) fn is_one(a: usize, b: usize) -> bool {
    let module = find(a);
    module.is_some_and(|module| (module.start..module.end).contains(&b))
}

/// Remembers the address range of the library's own code.
pub(crate) fn find_own() {
    if let Some(own) = find(find_own as fn() as usize) {
        OWN_START.store(own.start, Ordering::Relaxed);
        OWN_END.store(own.end, Ordering::Relaxed);
    }
}

/// The same, if it is known already.
pub(crate) fn set_own((start, end): (usize, usize)) {
    OWN_END.store(end, Ordering::Relaxed);
    OWN_START.store(start, Ordering::Relaxed);
}

/// Whether the address is in the library's own code.
pub(crate) fn is_own(address: usize) -> bool {
    let start = OWN_START.load(Ordering::Relaxed);
    start != 0 && (start..OWN_END.load(Ordering::Relaxed)).contains(&address)
}

/// The number of the address's module in the mapping, and its load bias. A new module is recorded.
pub(crate) fn number(
    mapping: &TableMapping,
    area: &impl Area,
    address: usize,
) -> Option<(u16, usize)> {
    let module = find(address)?;
    let range = (module.start as u64, module.end as u64, module.bias as u64);
    let mut buffer = [0; 4096];
    let name = path(&module, &mut buffer);
    let number = mapping.add_module(area, range, name)?;
    Some((number, module.bias))
}

/// The program itself has an empty name in the loader's list.
fn path<'a>(module: &Module, buffer: &'a mut [u8]) -> &'a [u8] {
    if module.name.is_null() {
        return &[];
    }
    // SAFETY: a C string that the loader keeps as long as the module is loaded.
    let name = unsafe { CStr::from_ptr(module.name) }.to_bytes();
    let length = if name.is_empty() {
        sys::executable(buffer)
    } else {
        let pairs = buffer.iter_mut().zip(name);
        pairs.map(|(to, from)| *to = *from).count()
    };
    buffer.get(..length).unwrap_or_default()
}
