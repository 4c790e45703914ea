//! The JNI and JVMTI functions in use, by their index in the specification's tables.

#![expect(unsafe_code, reason = "calls the machine's functions by their places")]

use core::ffi::{CStr, c_char, c_int, c_void};

/// An object whose first word is a table of functions.
pub(super) type Object = *mut *const *const c_void;
pub(super) type Reference = *mut c_void;
/// A method, as the JVM's opaque handle.
pub(super) type Method = *mut c_void;

pub(super) const JNI_1_6: c_int = 0x0001_0006;
pub(super) const JVMTI_11: c_int = 0x300b_0000;
/// `can_get_source_file_name` and `can_get_line_numbers`, bits 11 and 12 of 128.
const CAPABILITIES: [u32; 4] = [1 << 11 | 1 << 12, 0, 0, 0];

/// A frame as the JVM returns it: `jvmtiFrameInfo`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RawFrame {
    pub(super) method: Method,
    /// The index of the instruction; -1 in a native method.
    pub(super) location: i64,
}

impl RawFrame {
    pub(crate) const NONE: Self = Self {
        method: core::ptr::null_mut(),
        location: -1,
    };

    /// A frame by the JVM's own words for it.
    pub(super) fn new(method: u64, location: u64) -> Self {
        let method = usize::try_from(method).unwrap_or(0);
        Self {
            method: core::ptr::with_exposed_provenance_mut(method),
            location: location.cast_signed(),
        }
    }
}

/// `jvmtiLineNumberEntry`.
#[derive(Clone, Copy)]
#[repr(C)]
struct LineEntry {
    start: i64,
    line: i32,
}

/// # Safety
/// `object` must be alive, and `F` the type of the function at this index of its table.
pub(super) unsafe fn function<F: Copy>(object: Object, place: usize) -> Option<F> {
    // SAFETY: the object is alive, and its first word is the table.
    let table = unsafe { object.read() };
    let slot = table.wrapping_add(place);
    // SAFETY: the caller guarantees the index.
    let found = unsafe { slot.read() };
    if found.is_null() || size_of::<F>() != size_of::<*const c_void>() {
        return None;
    }
    // SAFETY: the caller guarantees the type, which has a pointer's size.
    Some(unsafe { core::mem::transmute_copy(&found) })
}

/// The JVM: `JavaVM*`.
#[derive(Clone, Copy)]
pub(super) struct Vm(pub(super) Object);

impl Vm {
    /// The first JVM of this process, from `JNI_GetCreatedJavaVMs`.
    ///
    /// # Safety
    /// `created` must be the address of this function.
    pub(super) unsafe fn first(created: *mut c_void) -> Option<Self> {
        type Created = unsafe extern "C" fn(*mut Object, c_int, *mut c_int) -> c_int;
        if created.is_null() {
            return None;
        }
        // SAFETY: the type matches <jni.h>.
        let created: Created = unsafe { core::mem::transmute(created) };
        let mut vm: Object = core::ptr::null_mut();
        let mut count = 0;
        // SAFETY: there is room for one, as the arguments say.
        let result = unsafe { created(&raw mut vm, 1, &raw mut count) };
        (result == 0 && count > 0 && !vm.is_null()).then_some(Self(vm))
    }

    pub(super) fn environment(self, version: c_int) -> Option<Object> {
        type GetEnv = unsafe extern "C" fn(Object, *mut Object, c_int) -> c_int;
        // SAFETY: a JVM is never freed, and this is the index of GetEnv.
        let get: GetEnv = unsafe { function(self.0, 6) }?;
        let mut environment: Object = core::ptr::null_mut();
        // SAFETY: writes one pointer.
        let result = unsafe { get(self.0, &raw mut environment, version) };
        (result == 0 && !environment.is_null()).then_some(environment)
    }

    /// The calling thread's environment, if it is attached. Allowed in every thread state.
    pub(super) fn jni(self) -> Option<Jni> {
        self.environment(JNI_1_6).map(Jni)
    }

    /// A new environment for queries, if the JVM is in its live phase. The thread must be in native
    /// code.
    pub(super) fn new_jvmti(self) -> Option<Jvmti> {
        type AddCapabilities = unsafe extern "C" fn(Object, *const u32) -> c_int;
        let jvmti = Jvmti(self.environment(JVMTI_11)?);
        // SAFETY: the environment is alive, and this is the function's index.
        let add: AddCapabilities = unsafe { function(jvmti.0, 141) }?;
        // SAFETY: reads the 128 bits.
        let result = unsafe { add(jvmti.0, CAPABILITIES.as_ptr()) };
        if result != 0 {
            jvmti.dispose();
            return None;
        }
        Some(jvmti)
    }
}

/// A thread's interface to the JVM: `JNIEnv*`.
#[derive(Clone, Copy)]
pub(super) struct Jni(pub(super) Object);

impl Jni {
    /// It is inside the JVM's record of the thread.
    pub(super) fn address(self) -> usize {
        self.0 as usize
    }

    fn is_throwing(self) -> bool {
        // SAFETY: the environment of the calling thread, and the index of ExceptionCheck.
        let check: Option<unsafe extern "C" fn(Object) -> u8> = unsafe { function(self.0, 228) };
        // SAFETY: as above; a missing answer counts as yes.
        check.is_none_or(|check| unsafe { check(self.0) } != 0)
    }

    pub(super) fn delete(self, reference: Reference) {
        type Delete = unsafe extern "C" fn(Object, Reference);
        // SAFETY: the environment of the calling thread, and the index of DeleteLocalRef.
        let delete: Option<Delete> = unsafe { function(self.0, 23) };
        if let Some(delete) = delete {
            // SAFETY: callers pass a local reference of this thread that is no longer used.
            unsafe { delete(self.0, reference) };
        }
    }

    fn class_of(self, object: &Local) -> Option<Local> {
        type GetObjectClass = unsafe extern "C" fn(Object, Reference) -> Reference;
        // SAFETY: the environment of the calling thread, and the index of GetObjectClass.
        let get: GetObjectClass = unsafe { function(self.0, 31) }?;
        // SAFETY: the reference is alive.
        let class = unsafe { get(self.0, object.reference) };
        Local::new(self, class)
    }

    /// A field of type long; `None` if it does not exist or an exception is pending.
    pub(super) fn long(self, object: &Local, name: &CStr) -> Option<i64> {
        type GetFieldId =
            unsafe extern "C" fn(Object, Reference, *const c_char, *const c_char) -> *const c_void;
        type GetLong = unsafe extern "C" fn(Object, Reference, *const c_void) -> i64;
        if self.is_throwing() {
            return None;
        }
        let class = self.class_of(object)?;
        // SAFETY: the environment of the calling thread, and the index of GetFieldID.
        let find: GetFieldId = unsafe { function(self.0, 94) }?;
        // SAFETY: a live class, and C strings.
        let field = unsafe { find(self.0, class.reference, name.as_ptr(), c"J".as_ptr()) };
        if field.is_null() {
            self.clear();
            return None;
        }
        // SAFETY: the environment of the calling thread, and the index of GetLongField.
        let get: GetLong = unsafe { function(self.0, 101) }?;
        // SAFETY: the field belongs to the object's class and has this type.
        Some(unsafe { get(self.0, object.reference, field) })
    }

    /// Clears the exception that this code caused.
    pub(super) fn clear(self) {
        // SAFETY: the environment of the calling thread, and the index of ExceptionClear.
        let clear: Option<unsafe extern "C" fn(Object)> = unsafe { function(self.0, 17) };
        if let Some(clear) = clear {
            // SAFETY: as above.
            unsafe { clear(self.0) };
        }
    }
}

/// A local reference, deleted on drop.
pub(super) struct Local {
    jni: Jni,
    pub(super) reference: Reference,
}

impl Local {
    pub(super) fn new(jni: Jni, reference: Reference) -> Option<Self> {
        (!reference.is_null()).then_some(Self { jni, reference })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.jni.delete(self.reference);
    }
}

/// The interface for queries: `jvmtiEnv*`. Every thread may use it.
#[derive(Clone, Copy)]
pub(super) struct Jvmti(pub(super) Object);

impl Jvmti {
    pub(super) fn from_raw(raw: *mut c_void) -> Option<Self> {
        (!raw.is_null()).then_some(Self(raw.cast()))
    }

    pub(super) fn raw(self) -> *mut c_void {
        self.0.cast()
    }

    pub(super) fn dispose(self) {
        // SAFETY: the environment is alive, and this is the index of DisposeEnvironment.
        let dispose: Option<unsafe extern "C" fn(Object) -> c_int> =
            unsafe { function(self.0, 126) };
        if let Some(dispose) = dispose {
            // SAFETY: callers do not use it again.
            let _ = unsafe { dispose(self.0) };
        }
    }

    /// The calling `Thread`.
    pub(super) fn thread(self, jni: Jni) -> Option<Local> {
        type GetCurrentThread = unsafe extern "C" fn(Object, *mut Reference) -> c_int;
        // SAFETY: the environment is alive, and this is the function's index.
        let get: GetCurrentThread = unsafe { function(self.0, 17) }?;
        let mut thread = core::ptr::null_mut();
        // SAFETY: writes one reference.
        let result = unsafe { get(self.0, &raw mut thread) };
        Local::new(jni, thread).filter(|_| result == 0)
    }

    /// The innermost frames of the calling thread; returns how many.
    pub(super) fn stack(self, frames: &mut [RawFrame]) -> usize {
        type GetStackTrace = unsafe extern "C" fn(
            Object,
            Reference,
            c_int,
            c_int,
            *mut RawFrame,
            *mut c_int,
        ) -> c_int;
        // SAFETY: the environment is alive, and this is the function's index.
        let get: Option<GetStackTrace> = unsafe { function(self.0, 103) };
        let (Some(get), Ok(most)) = (get, c_int::try_from(frames.len())) else {
            return 0;
        };
        let mut used = 0;
        let start = frames.as_mut_ptr();
        // SAFETY: no thread means the calling one; there is room for `most` frames.
        let result = unsafe { get(self.0, core::ptr::null_mut(), 0, most, start, &raw mut used) };
        if result == 0 {
            usize::try_from(used).unwrap_or(0).min(frames.len())
        } else {
            0
        }
    }

    /// The class that declares a method.
    pub(super) fn class(self, jni: Jni, method: Method) -> Option<Local> {
        type GetClass = unsafe extern "C" fn(Object, Method, *mut Reference) -> c_int;
        // SAFETY: the environment is alive, and this is the index of GetMethodDeclaringClass.
        let get: GetClass = unsafe { function(self.0, 64) }?;
        let mut class = core::ptr::null_mut();
        // SAFETY: writes one reference; the JVM recognises an unloaded method.
        let result = unsafe { get(self.0, method, &raw mut class) };
        Local::new(jni, class).filter(|_| result == 0)
    }

    /// `Lcom/example/Main;`.
    pub(super) fn signature(self, class: &Local) -> Option<JvmMemory<c_char>> {
        type GetSignature =
            unsafe extern "C" fn(Object, Reference, *mut *mut c_char, *mut *mut c_char) -> c_int;
        // SAFETY: the environment is alive, and this is the index of GetClassSignature.
        let get: GetSignature = unsafe { function(self.0, 47) }?;
        let mut text = core::ptr::null_mut();
        let none = core::ptr::null_mut();
        // SAFETY: a live class; writes one text, the other is not requested.
        let result = unsafe { get(self.0, class.reference, &raw mut text, none) };
        JvmMemory::new(self, text).filter(|_| result == 0)
    }

    /// `Main.java`.
    pub(super) fn file(self, class: &Local) -> Option<JvmMemory<c_char>> {
        type GetFile = unsafe extern "C" fn(Object, Reference, *mut *mut c_char) -> c_int;
        // SAFETY: the environment is alive, and this is the index of GetSourceFileName.
        let get: GetFile = unsafe { function(self.0, 49) }?;
        let mut text = core::ptr::null_mut();
        // SAFETY: a live class; writes one text.
        let result = unsafe { get(self.0, class.reference, &raw mut text) };
        JvmMemory::new(self, text).filter(|_| result == 0)
    }

    /// The method's own name.
    pub(super) fn name(self, method: Method) -> Option<JvmMemory<c_char>> {
        type Texts = *mut *mut c_char;
        type GetName = unsafe extern "C" fn(Object, Method, Texts, Texts, Texts) -> c_int;
        // SAFETY: the environment is alive, and this is the index of GetMethodName.
        let get: GetName = unsafe { function(self.0, 63) }?;
        let mut text = core::ptr::null_mut();
        let none = core::ptr::null_mut();
        // SAFETY: writes one text, the others are not requested.
        let result = unsafe { get(self.0, method, &raw mut text, none, none) };
        JvmMemory::new(self, text).filter(|_| result == 0)
    }

    /// The line of a frame; 0 if it is unknown.
    pub(super) fn line(self, frame: &RawFrame) -> u32 {
        self.find_line(frame).unwrap_or(0)
    }

    fn find_line(self, frame: &RawFrame) -> Option<u32> {
        type GetLines =
            unsafe extern "C" fn(Object, Method, *mut c_int, *mut *mut LineEntry) -> c_int;
        if frame.location < 0 {
            return None;
        }
        // SAFETY: the environment is alive, and this is the index of GetLineNumberTable.
        let get: GetLines = unsafe { function(self.0, 69) }?;
        let mut count = 0;
        let mut start = core::ptr::null_mut();
        // SAFETY: writes a number and a pointer to as many entries.
        let result = unsafe { get(self.0, frame.method, &raw mut count, &raw mut start) };
        let table = JvmMemory::new(self, start).filter(|_| result == 0)?;
        let mut best: Option<LineEntry> = None;
        for index in 0..usize::try_from(count).ok()? {
            let place = table.start.wrapping_add(index);
            // SAFETY: one of the `count` entries, which live until `table` is dropped.
            let entry = unsafe { place.read() };
            let is_better = best.is_none_or(|best| entry.start >= best.start);
            if entry.start <= frame.location && is_better {
                best = Some(entry);
            }
        }
        u32::try_from(best?.line).ok()
    }
}

/// Memory that the JVM allocated, freed on drop.
pub(super) struct JvmMemory<T> {
    jvmti: Jvmti,
    pub(super) start: *mut T,
}

impl<T> JvmMemory<T> {
    pub(super) fn new(jvmti: Jvmti, start: *mut T) -> Option<Self> {
        (!start.is_null()).then_some(Self { jvmti, start })
    }
}

impl JvmMemory<c_char> {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: a C string, owned until it is freed.
        unsafe { CStr::from_ptr(self.start) }.to_bytes()
    }
}

impl<T> Drop for JvmMemory<T> {
    fn drop(&mut self) {
        type Deallocate = unsafe extern "C" fn(Object, *mut c_void) -> c_int;
        // SAFETY: the environment is alive, and this is the index of Deallocate.
        let free: Option<Deallocate> = unsafe { function(self.jvmti.0, 46) };
        if let Some(free) = free {
            // SAFETY: the memory came from this environment.
            let _ = unsafe { free(self.jvmti.0, self.start.cast()) };
        }
    }
}
