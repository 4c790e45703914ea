//! The modules of the process, as the loader lists them. While the list is walked, no module is
//! unloaded.

#![expect(unsafe_code, reason = "asks the loader and reads what it answers")]

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::loader;
use crate::symbols::{Dynamic, Symbols};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PF_W: u32 = 2;
const PAGE: usize = 4096;

/// `Elf64_Phdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    in_file: usize,
    in_memory: usize,
    align: usize,
}

/// `struct dl_phdr_info`.
#[repr(C)]
struct Info {
    bias: usize,
    name: *const c_char,
    headers: *const ProgramHeader,
    count: u16,
    adds: u64,
}

/// A module in the loader's list.
pub(super) struct LoadedModule<'a> {
    /// Its place in the list; the program itself is the first.
    pub(super) index: usize,
    pub(super) name: &'a CStr,
    /// The offset between addresses in the file and in memory.
    pub(super) bias: usize,
    /// From its first address to one past its last.
    pub(super) range: (usize, usize),
    /// The pages that the loader makes read-only after the relocation; empty if there are none.
    pub(super) relro: (usize, usize),
    /// How many modules were ever loaded.
    pub(super) adds: u64,
    dynamic: usize,
    headers: &'a [ProgramHeader],
}

impl LoadedModule<'_> {
    fn new<'a>(index: usize, info: &Info) -> LoadedModule<'a> {
        // SAFETY: the loader's own list of headers, which it keeps as long as the module.
        let headers = unsafe { core::slice::from_raw_parts(info.headers, usize::from(info.count)) };
        // SAFETY: the loader's own C string, which it keeps as long as the module.
        let name = unsafe { CStr::from_ptr(info.name) };
        let mut module = LoadedModule {
            index,
            name,
            bias: info.bias,
            range: (usize::MAX, 0),
            relro: (0, 0),
            adds: info.adds,
            dynamic: 0,
            headers,
        };
        for header in headers {
            let start = info.bias.wrapping_add(header.address);
            let end = start.wrapping_add(header.in_memory);
            match header.kind {
                PT_LOAD => {
                    module.range = (module.range.0.min(start), module.range.1.max(end));
                }
                PT_DYNAMIC => module.dynamic = start,
                // Rounded as the loader does it.
                PT_GNU_RELRO => module.relro = (start & !(PAGE - 1), end & !(PAGE - 1)),
                _ => {}
            }
        }
        module
    }

    pub(super) fn contains(&self, address: usize) -> bool {
        (self.range.0..self.range.1).contains(&address)
    }

    /// Whether this word is in data of the module.
    pub(super) fn has_word(&self, address: usize) -> bool {
        address & 7 == 0
            && self.headers.iter().any(|header| {
                let start = self.bias.wrapping_add(header.address);
                let end = start.wrapping_add(header.in_memory);
                let is_data = header.kind == PT_LOAD && header.flags & PF_W != 0;
                is_data && address >= start && address.saturating_add(8) <= end
            })
    }

    pub(super) fn symbols(&self) -> Option<Symbols> {
        // SAFETY: the loader says that this is the module's dynamic section. Callers use it while
        // the list is walked, or for modules that are never unloaded.
        unsafe { Symbols::of(self.dynamic, self.bias, self.range) }
    }

    /// The entries of its dynamic section.
    pub(super) fn dynamic(&self) -> impl Iterator<Item = Dynamic> {
        // SAFETY: as above.
        unsafe { Dynamic::all(self.dynamic) }
    }
}

type Visit = unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int;

/// What a visitor returns to go on.
pub(super) const NEXT: bool = false;
/// What a visitor returns to end the walk.
pub(super) const STOP: bool = true;

/// Shows every module to `visit`, in the loader's order, until it returns [`STOP`].
pub(super) fn each<F: FnMut(&LoadedModule<'_>) -> bool>(visit: F) {
    struct State<F> {
        visit: F,
        index: usize,
    }

    unsafe extern "C" fn one<F: FnMut(&LoadedModule<'_>) -> bool>(
        info: *const Info,
        _: usize,
        state: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes on the pointer below.
        let state = unsafe { &mut *state.cast::<State<F>>() };
        // SAFETY: the loader passes one structure.
        let info = unsafe { &*info };
        let index = state.index;
        state.index += 1;
        if info.headers.is_null() || info.name.is_null() {
            return 0;
        }
        c_int::from((state.visit)(&LoadedModule::new(index, info)) == STOP)
    }

    // The function is not interposed.
    let found = loader::iterate_address();
    if found.is_null() {
        return;
    }
    // SAFETY: the type matches <link.h>.
    let iterate = unsafe {
        core::mem::transmute::<*mut c_void, unsafe extern "C" fn(Visit, *mut c_void) -> c_int>(
            found,
        )
    };
    let mut state = State { visit, index: 0 };
    // SAFETY: the callback has the type that the loader expects, and its state outlives the call.
    let _ = unsafe { iterate(one::<F>, (&raw mut state).cast()) };
}

/// How many modules were ever loaded.
pub(super) fn adds() -> u64 {
    let mut adds = 0;
    each(|module| {
        adds = module.adds;
        STOP
    });
    adds
}
