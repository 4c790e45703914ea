//! Hooks that notice when Python creates a task or a work item: slots of their types.
//!
//! `_asyncio.Task` is initialised by the function in its slot `tp_init`, and `_WorkItem` of
//! `concurrent.futures` gets its memory from `tp_alloc`. The replacement records the creator and
//! calls the original, so nothing changes for Python code: no wrapper appears in a traceback and no
//! name is rebound. The types are looked up in `sys.modules` while holding the GIL: at once if the
//! calling thread holds it, otherwise in a pending call that the main thread makes between two
//! instructions. No thread waits for the GIL.

#![expect(
    unsafe_code,
    reason = "calls the interpreter's functions and writes slots of its types"
)]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::{FOLLOWED, ITEMS, RUN_CODE, TASKS};
use crate::python::Runtime;
use crate::{language, owner, start};

/// An object of the interpreter.
type Object = *mut c_void;
type Init = unsafe extern "C" fn(Object, Object, Object) -> c_int;
type Alloc = unsafe extern "C" fn(Object, isize) -> Object;
type Pending = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The interpreter's functions that are needed to find a type; every version has all of them.
#[derive(Debug)]
pub(crate) struct Api {
    current_thread: unsafe extern "C" fn() -> *const c_void,
    add_pending: unsafe extern "C" fn(Pending, *mut c_void) -> c_int,
    sys_object: unsafe extern "C" fn(*const c_char) -> Object,
    item: unsafe extern "C" fn(Object, *const c_char) -> Object,
    attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    release: unsafe extern "C" fn(Object),
    fetch_error: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
    restore_error: unsafe extern "C" fn(Object, Object, Object),
    type_type: u64,
}

impl Api {
    /// # Safety
    /// `search` answers like dlsym(3) for the interpreter.
    pub(crate) unsafe fn find(search: impl Fn(&CStr) -> *const c_void) -> Option<Self> {
        let type_type = search(c"PyType_Type");
        Some(Self {
            // SAFETY: as below; 3.13 gave the function its second name.
            current_thread: unsafe { function(search(c"_PyThreadState_UncheckedGet")) }
                // SAFETY: the same function.
                .or_else(|| unsafe { function(search(c"PyThreadState_GetUnchecked")) })?,
            // SAFETY: the function has this type in every version in the offset table.
            add_pending: unsafe { function(search(c"Py_AddPendingCall")) }?,
            // SAFETY: the function has this type in every version in the offset table.
            sys_object: unsafe { function(search(c"PySys_GetObject")) }?,
            // SAFETY: the function has this type in every version in the offset table.
            item: unsafe { function(search(c"PyDict_GetItemString")) }?,
            // SAFETY: the function has this type in every version in the offset table.
            attribute: unsafe { function(search(c"PyObject_GetAttrString")) }?,
            // SAFETY: the function has this type in every version in the offset table.
            release: unsafe { function(search(c"Py_DecRef")) }?,
            // SAFETY: the function has this type in every version in the offset table.
            fetch_error: unsafe { function(search(c"PyErr_Fetch")) }?,
            // SAFETY: the function has this type in every version in the offset table.
            restore_error: unsafe { function(search(c"PyErr_Restore")) }?,
            type_type: (!type_type.is_null()).then(|| type_type.expose_provenance() as u64)?,
        })
    }

    /// Whether the calling thread holds the GIL: only then is its own thread state the current one.
    fn is_locked_here(&self, runtime: &Runtime) -> bool {
        // SAFETY: reads one variable, callable at any time.
        let current = unsafe { (self.current_thread)() };
        !current.is_null() && runtime.thread() == Some(current.expose_provenance() as u64)
    }

    /// An imported module, borrowed. The GIL is held.
    fn module(&self, name: &CStr) -> Option<Object> {
        // SAFETY: a C string; the GIL is held.
        let modules = unsafe { (self.sys_object)(c"modules".as_ptr()) };
        if modules.is_null() {
            return None;
        }
        // SAFETY: an object, which need not be a dictionary, and a C string; the GIL is held.
        let module = unsafe { (self.item)(modules, name.as_ptr()) };
        (!module.is_null()).then_some(module)
    }

    /// An attribute, which the caller must release. The GIL is held.
    fn attribute(&self, of: Object, name: &CStr) -> Option<Object> {
        // SAFETY: a live object and a C string; the GIL is held.
        let found = unsafe { (self.attribute)(of, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// Runs `work` and preserves an exception that was raised before.
    fn beside_errors(&self, work: impl FnOnce()) {
        let mut error = [core::ptr::null_mut(); 3];
        let [kind, value, trace] = &mut error;
        // SAFETY: three places to write to; the GIL is held.
        unsafe { (self.fetch_error)(kind, value, trace) };
        work();
        let [kind, value, trace] = error;
        // SAFETY: restores what was fetched, which replaces an exception raised by `work`.
        unsafe { (self.restore_error)(kind, value, trace) };
    }
}

/// A function by its address.
///
/// # Safety
/// `F` is the type of the function that is there.
unsafe fn function<F: Copy>(address: *const c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*const c_void>()) };
    // SAFETY: guaranteed by the caller, and the sizes are equal.
    (!address.is_null()).then(|| unsafe { core::mem::transmute_copy(&address) })
}

/// Whether a pending call was requested and has not been made.
static IS_PENDING: AtomicU32 = AtomicU32::new(0);
/// The slots that were changed, and what is in them.
static TASK_SLOT: AtomicPtr<*mut c_void> = AtomicPtr::new(core::ptr::null_mut());
static ITEM_SLOT: AtomicPtr<*mut c_void> = AtomicPtr::new(core::ptr::null_mut());
static TASK_INIT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static ITEM_ALLOC: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Follows what can be followed by now. Cheap once everything is followed.
pub(super) fn follow(runtime: &'static Runtime, api: &'static Api) {
    const ALL: u32 = TASKS | ITEMS;
    let is_done = FOLLOWED.load(Ordering::Relaxed) & ALL == ALL;
    if is_done || !owner::is_here() || runtime.thread().is_none() || runtime.is_ended_here() {
        return;
    }
    if api.is_locked_here(runtime) {
        find_types(runtime, api);
    } else if IS_PENDING.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: callable without the GIL; this library is never unloaded.
        if unsafe { (api.add_pending)(pending, core::ptr::null_mut()) } != 0 {
            IS_PENDING.store(0, Ordering::Relaxed);
        }
    }
}

pub(super) fn forget() {
    IS_PENDING.store(0, Ordering::Relaxed);
}

unsafe extern "C" fn pending(_: *mut c_void) -> c_int {
    IS_PENDING.store(0, Ordering::Relaxed);
    if !start::is_on() {
        // The recording ended meanwhile.
        return 0;
    }
    language::with_python(|runtime, api| {
        if api.is_locked_here(runtime) && !runtime.is_ended_here() {
            find_types(runtime, api);
        }
    });
    0
}

/// The GIL is held.
fn find_types(runtime: &Runtime, api: &Api) {
    api.beside_errors(|| {
        if FOLLOWED.load(Ordering::Relaxed) & TASKS == 0 && follow_tasks(runtime, api).is_some() {
            FOLLOWED.fetch_or(TASKS, Ordering::Relaxed);
        }
        if FOLLOWED.load(Ordering::Relaxed) & ITEMS == 0 && follow_items(runtime, api).is_some() {
            FOLLOWED.fetch_or(ITEMS, Ordering::Relaxed);
        }
    });
    if !start::is_on() {
        // The recording ended meanwhile.
        super::release();
    }
}

fn follow_tasks(runtime: &Runtime, api: &Api) -> Option<()> {
    let module = api.module(c"_asyncio")?;
    let task = api.attribute(module, c"Task")?;
    let slot = runtime.offsets().type_init;
    let is_set = is_type(runtime, api, task, b"_asyncio.Task\0")
        && replace(
            task,
            slot,
            (&TASK_SLOT, &TASK_INIT),
            task_init as *mut c_void,
        );
    // SAFETY: releases this function's reference; the module has another.
    unsafe { (api.release)(task) };
    is_set.then_some(())
}

fn follow_items(runtime: &Runtime, api: &Api) -> Option<()> {
    let module = api.module(c"concurrent.futures.thread")?;
    let item = api.attribute(module, c"_WorkItem")?;
    let run = api.attribute(item, c"run")?;
    // This reference is kept, so that no other code object can get its address.
    let code = api.attribute(run, c"__code__")?;
    let slot = runtime.offsets().type_alloc;
    let is_set = is_type(runtime, api, item, b"_WorkItem\0")
        && replace(
            item,
            slot,
            (&ITEM_SLOT, &ITEM_ALLOC),
            item_alloc as *mut c_void,
        );
    if is_set {
        RUN_CODE.store(code.expose_provenance() as u64, Ordering::Relaxed);
    }
    for one in [run, item] {
        // SAFETY: releases this function's reference; the class and the module have others.
        unsafe { (api.release)(one) };
    }
    is_set.then_some(())
}

/// Whether the object is a plain class of this name.
fn is_type(runtime: &Runtime, api: &Api, object: Object, name: &[u8]) -> bool {
    runtime.is_type_of_name(object.expose_provenance() as u64, api.type_type, name)
}

/// Replaces the function in a slot of a type and keeps the original.
fn replace(
    of: Object,
    slot: u16,
    (changed, theirs): (&AtomicPtr<*mut c_void>, &AtomicPtr<c_void>),
    ours: *mut c_void,
) -> bool {
    let place = of
        .wrapping_byte_add(usize::from(slot))
        .cast::<*mut c_void>();
    // SAFETY: a slot of a live type object, at the offset of this version.
    let before = unsafe { place.read() };
    if before.is_null() || before == ours {
        return false;
    }
    theirs.store(before, Ordering::Release);
    // SAFETY: type objects are in writable memory, the GIL is held, and the function has the type
    // of the slot.
    unsafe { place.write(ours) };
    changed.store(place, Ordering::Release);
    true
}

/// Puts the original functions back. Classes derived meanwhile have a copy of the slot, which leads
/// to the replacement: it calls the original and records nothing.
pub(super) fn release() {
    let ours = [task_init as *mut c_void, item_alloc as *mut c_void];
    let changed = [(&TASK_SLOT, &TASK_INIT), (&ITEM_SLOT, &ITEM_ALLOC)];
    for (ours, (slot, theirs)) in ours.into_iter().zip(changed) {
        let place = slot.swap(core::ptr::null_mut(), Ordering::AcqRel);
        // The type may be gone with its module.
        if place.is_null() || !crate::sys::is_readable(place as usize) {
            continue;
        }
        // SAFETY: an aligned word of a type object, or of memory that was one and can be read.
        let word = unsafe { &*place.cast::<AtomicPtr<c_void>>() };
        let before = theirs.load(Ordering::Acquire);
        // Only a live slot has the address of the replacement.
        if word.load(Ordering::Acquire) != ours {
            continue;
        }
        let _ = word.compare_exchange(ours, before, Ordering::AcqRel, Ordering::Relaxed);
    }
}

unsafe extern "C" fn task_init(task: Object, args: Object, names: Object) -> c_int {
    language::with_python(|runtime, _| {
        let coroutine = runtime.coroutine_of(args.expose_provenance() as u64);
        if let Some(coroutine) = coroutine {
            super::task_created(coroutine);
        }
    });
    let theirs = TASK_INIT.load(Ordering::Acquire);
    // SAFETY: the original value of this type's slot.
    let theirs = unsafe { core::mem::transmute::<*mut c_void, Init>(theirs) };
    // SAFETY: passes on the caller's arguments.
    unsafe { theirs(task, args, names) }
}

unsafe extern "C" fn item_alloc(kind: Object, count: isize) -> Object {
    let theirs = ITEM_ALLOC.load(Ordering::Acquire);
    // SAFETY: the original value of this type's slot.
    let theirs = unsafe { core::mem::transmute::<*mut c_void, Alloc>(theirs) };
    // SAFETY: passes on the caller's arguments.
    let item = unsafe { theirs(kind, count) };
    if !item.is_null() {
        super::item_created(item.expose_provenance() as u64);
    }
    item
}
