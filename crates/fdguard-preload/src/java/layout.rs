//! Where the JVM keeps a thread's state, found through the list of fields that it exports for
//! debuggers.

#![expect(unsafe_code, reason = "reads the machine's list and a thread's state")]

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicI32, Ordering};

/// `_thread_in_native` in every version.
const IN_NATIVE: i32 = 4;
/// More entries than any version has.
const MOST: usize = 20_000;

/// The exported list. Its columns are exported too.
struct List {
    start: usize,
    stride: usize,
    class: usize,
    field: usize,
    offset: usize,
}

impl List {
    fn find(search: impl Fn(&CStr) -> *mut c_void) -> Option<Self> {
        let word = |name: &CStr| {
            let place = search(name).cast::<usize>();
            // SAFETY: each of these names is a variable of eight bytes.
            (!place.is_null()).then(|| unsafe { place.read() })
        };
        let list = Self {
            start: word(c"gHotSpotVMStructs")?,
            stride: word(c"gHotSpotVMStructEntryArrayStride")?,
            class: word(c"gHotSpotVMStructEntryTypeNameOffset")?,
            field: word(c"gHotSpotVMStructEntryFieldNameOffset")?,
            offset: word(c"gHotSpotVMStructEntryOffsetOffset")?,
        };
        (list.start != 0 && list.stride != 0).then_some(list)
    }

    fn word(&self, index: usize, column: usize) -> usize {
        let place = self
            .start
            .wrapping_add(index.wrapping_mul(self.stride))
            .wrapping_add(column);
        // SAFETY: callers stop at the entry without a name, which ends the list.
        unsafe { (place as *const usize).read() }
    }

    fn is(&self, index: usize, column: usize, name: &CStr) -> bool {
        let text = self.word(index, column) as *const c_char;
        // SAFETY: null or a static C string of the JVM.
        !text.is_null() && unsafe { CStr::from_ptr(text) } == name
    }
}

/// The offset of the state in the JVM's record of a thread.
pub(super) fn state_offset(search: impl Fn(&CStr) -> *mut c_void) -> Option<usize> {
    let list = List::find(search)?;
    for index in 0..MOST {
        if list.word(index, list.class) == 0 {
            return None;
        }
        if list.is(index, list.field, c"_thread_state") && list.is(index, list.class, c"JavaThread")
        {
            return Some(list.word(index, list.offset));
        }
    }
    None
}

/// Whether the thread with this record runs native code.
///
/// # Safety
/// `thread` must be the JVM's record of the calling thread, with its state at `offset`.
pub(super) unsafe fn is_in_native(thread: usize, offset: usize) -> bool {
    let state = thread.wrapping_add(offset) as *const AtomicI32;
    // SAFETY: the caller guarantees the address; the JVM writes it as one word.
    let state = unsafe { &*state };
    state.load(Ordering::Relaxed) == IN_NATIVE
}
