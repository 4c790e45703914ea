//! The JVM of this process: found once, called only when it is safe.

#![expect(unsafe_code, reason = "asks the loader for the machine")]

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::call::{Jni, Jvmti, RawFrame, Vm};
use super::layout;
use crate::unwind::Trace;
use crate::{loader, modules};

/// The largest offset of the `JNIEnv` in a thread's record.
const LARGEST: usize = 16 * 1024;

/// `JNI_GetCreatedJavaVMs`, null until it is found.
static CREATED: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The address range of the JVM's own code.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);
/// The offset of the state in a thread's record.
static STATE: AtomicUsize = AtomicUsize::new(0);
/// The offset of the `JNIEnv` in a thread's record; 0 until it is known.
static WITHIN: AtomicUsize = AtomicUsize::new(0);
/// The environment for queries.
static JVMTI: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// Opens by generated code in a process where no JVM was found.
static MISSED: AtomicU32 = AtomicU32::new(0);
/// Whether the JVM must not be queried any more.
static IS_OFF: AtomicU32 = AtomicU32::new(0);

fn search(name: &CStr) -> *mut c_void {
    loader::dlsym(core::ptr::null_mut(), name)
}

/// In a forked child: the JVM's other threads do not exist there, but the locks that they held stay
/// locked.
pub(crate) fn forget() {
    IS_OFF.store(1, Ordering::Relaxed);
}

/// Whether generated code is this JVM's.
pub(crate) fn is_found() -> bool {
    !CREATED.load(Ordering::Relaxed).is_null()
}

/// The Java frames of a stack.
#[derive(Clone, Copy)]
pub(crate) struct JavaWalk {
    pub(super) jvmti: Jvmti,
    pub(super) jni: Jni,
    /// How many frames there are.
    pub(super) used: usize,
    /// Equal for equal stacks.
    pub(crate) hash: u64,
}

/// The Java frames of the calling thread. Generated code in the trace is cut off if it is the
/// JVM's: it is meaningless, and differs later for the same method.
pub(crate) fn walk(trace: &mut Trace, frames: &mut [RawFrame]) -> Option<JavaWalk> {
    let generated = trace.generated?;
    if IS_OFF.load(Ordering::Relaxed) != 0 {
        return None;
    }
    let created = created()?;
    // SAFETY: `created` returns this function's address.
    let vm = unsafe { Vm::first(created) }?;
    let machine = START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed);
    let natives = trace.addresses().get(..generated).unwrap_or_default();
    let is_machines = natives.iter().any(|address| machine.contains(address));
    let is_asked = trace.is_generated_sure && !natives.is_empty() && !is_machines;
    let walked = if is_asked { ask(vm, frames) } else { None };
    trace.cut(generated);
    walked
}

fn ask(vm: Vm, frames: &mut [RawFrame]) -> Option<JavaWalk> {
    let jni = vm.jni()?;
    let within = WITHIN.load(Ordering::Relaxed);
    if within != 0 && !is_in_native(jni, within) {
        return None;
    }
    let jvmti = jvmti(vm)?;
    if within == 0 {
        let found = within_record(jvmti, jni).filter(|within| is_in_native(jni, *within))?;
        WITHIN.store(found, Ordering::Relaxed);
    }
    let used = jvmti.stack(frames);
    if used == 0 {
        return None;
    }
    let mut hash = 0x6a09_e667_f3bc_c908_u64;
    for frame in frames.iter().take(used) {
        for word in [frame.method as u64, frame.location.cast_unsigned()] {
            hash = (hash ^ word)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(31);
        }
    }
    Some(JavaWalk {
        jvmti,
        jni,
        used,
        hash,
    })
}

fn is_in_native(jni: Jni, within: usize) -> bool {
    let thread = jni.address().wrapping_sub(within);
    // SAFETY: `within` was measured on this JVM, where it is the same for all threads, and so was
    // the offset.
    unsafe { layout::is_in_native(thread, STATE.load(Ordering::Relaxed)) }
}

/// A `Thread` object has the address of its record. A virtual thread has none: then another thread
/// will reveal the offset.
fn within_record(jvmti: Jvmti, jni: Jni) -> Option<usize> {
    let thread = jvmti.thread(jni)?;
    let record = usize::try_from(jni.long(&thread, c"eetop")?).ok()?;
    let within = jni.address().checked_sub(record)?;
    let is_likely = within != 0 && within < LARGEST && within & 7 == 0 && record & 7 == 0;
    is_likely.then_some(within)
}

/// One environment for all threads; the loser of a race disposes its own.
fn jvmti(vm: Vm) -> Option<Jvmti> {
    if let Some(known) = Jvmti::from_raw(JVMTI.load(Ordering::Acquire)) {
        return Some(known);
    }
    let new = vm.new_jvmti()?;
    let none = core::ptr::null_mut();
    let claim = JVMTI.compare_exchange(none, new.raw(), Ordering::AcqRel, Ordering::Acquire);
    match claim {
        Ok(_) => Some(new),
        Err(other) => {
            new.dispose();
            Jvmti::from_raw(other)
        }
    }
}

/// Asks the loader when generated code opened something, less and less often in a process without a
/// JVM.
fn created() -> Option<*mut c_void> {
    let known = CREATED.load(Ordering::Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let missed = MISSED.fetch_add(1, Ordering::Relaxed);
    if !missed.wrapping_add(1).is_power_of_two() {
        return None;
    }
    find();
    let found = CREATED.load(Ordering::Acquire);
    (!found.is_null()).then_some(found)
}

/// Asks the loader for a JVM. The environment for queries is created later, by a thread that is
/// known to be in native code.
pub(crate) fn find() {
    let found = search(c"JNI_GetCreatedJavaVMs");
    if found.is_null() {
        return;
    }
    let library = modules::find(found as usize);
    let (Some(library), Some(state)) = (library, layout::state_offset(search)) else {
        // A JVM of another vendor, whose thread states are unknown.
        forget();
        return;
    };
    START.store(library.start, Ordering::Relaxed);
    END.store(library.end, Ordering::Relaxed);
    STATE.store(state, Ordering::Relaxed);
    CREATED.store(found, Ordering::Release);
}
