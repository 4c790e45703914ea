//! The functions of JNI and JVMTI that a walk needs, by their index in the specification's tables.
//! All are called by a thread of the library that is attached to the JVM and in native code.

#![expect(unsafe_code, reason = "calls the machine's functions by their places")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::ManuallyDrop;

use super::super::call::{
    JNI_1_6, JVMTI_11, Jni, JvmMemory, Jvmti, Local, Object, Reference, Vm, function,
};

/// `can_tag_objects`, `can_get_source_file_name` and `can_get_line_numbers`.
const CAPABILITIES: [u32; 4] = [1 | 1 << 11 | 1 << 12, 0, 0, 0];
/// What a missing function answers: `JVMTI_ERROR_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_int = 98;
/// Objects of classes without a tag are not reported.
const TAGGED_CLASSES: c_int = 0x20;
const STATIC: c_int = 0x8;

/// `jvmtiHeapCallbacks`.
#[repr(C)]
pub(super) struct Callbacks {
    object: *const c_void,
    reference: Option<ReferenceCallback>,
    field: Option<FieldCallback>,
    rest: [*const c_void; 13],
}

impl Callbacks {
    pub(super) const fn new(
        reference: Option<ReferenceCallback>,
        field: Option<FieldCallback>,
    ) -> Self {
        Self {
            object: core::ptr::null(),
            reference,
            field,
            rest: [core::ptr::null(); 13],
        }
    }
}

/// `jvmtiHeapReferenceCallback`.
pub(super) type ReferenceCallback = unsafe extern "C" fn(
    kind: c_int,
    info: *const Info,
    class: i64,
    referrer_class: i64,
    size: i64,
    tag: *mut i64,
    referrer: *mut i64,
    length: c_int,
    user: *mut c_void,
) -> c_int;

/// `jvmtiPrimitiveFieldCallback`. The value is a union of eight bytes.
pub(super) type FieldCallback = unsafe extern "C" fn(
    kind: c_int,
    info: *const Info,
    class: i64,
    tag: *mut i64,
    value: u64,
    primitive: c_int,
    user: *mut c_void,
) -> c_int;

/// `jvmtiHeapReferenceInfo`: a field or an element uses only the index.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Info {
    /// The index, in the first four bytes; of a local variable the thread's tag.
    pub(super) first: u64,
    pub(super) thread_id: i64,
    pub(super) depth: c_int,
    pub(super) method: u64,
    pub(super) location: u64,
    pub(super) slot: c_int,
}

/// `jvmtiThreadInfo`.
#[repr(C)]
struct ThreadInfo {
    name: *mut c_char,
    priority: c_int,
    is_daemon: u8,
    group: Reference,
    loader: Reference,
}

/// A thread that is attached to the JVM, with an environment for the walk. Both end on drop.
pub(super) struct Attachment {
    vm: Vm,
    pub(super) jni: Jni,
    pub(super) jvmti: Jvmti,
}

impl Attachment {
    /// Attaches the calling thread as a daemon: the end of the program does not wait for it.
    pub(super) fn new(vm: Vm) -> Result<Self, c_int> {
        type Attach = unsafe extern "C" fn(Object, *mut Object, *const c_void) -> c_int;
        #[repr(C)]
        struct Arguments {
            version: c_int,
            name: *const c_char,
            group: Reference,
        }
        // SAFETY: a JVM is never freed, and this is the index of AttachCurrentThreadAsDaemon.
        let attach: Option<Attach> = unsafe { function(vm.0, 7) };
        let attach = attach.ok_or(NOT_AVAILABLE)?;
        let arguments = Arguments {
            version: JNI_1_6,
            // With a name of its own it takes no number of the program's threads.
            name: c"fdguard-why".as_ptr(),
            group: core::ptr::null_mut(),
        };
        let mut jni: Object = core::ptr::null_mut();
        // SAFETY: writes one pointer, and reads the arguments.
        let result = unsafe { attach(vm.0, &raw mut jni, (&raw const arguments).cast()) };
        if result != 0 || jni.is_null() {
            return Err(result);
        }
        let jni = Jni(jni);
        match Self::queries(vm) {
            Ok(jvmti) => Ok(Self { vm, jni, jvmti }),
            Err(error) => {
                detach(vm);
                Err(error)
            }
        }
    }

    fn queries(vm: Vm) -> Result<Jvmti, c_int> {
        type AddCapabilities = unsafe extern "C" fn(Object, *const u32) -> c_int;
        let jvmti = vm.environment(JVMTI_11).map(Jvmti).ok_or(NOT_AVAILABLE)?;
        // SAFETY: the environment is alive, and this is the function's index.
        let add: Option<AddCapabilities> = unsafe { function(jvmti.0, 141) };
        // SAFETY: reads the 128 bits.
        let result = add.map_or(NOT_AVAILABLE, |add| unsafe {
            add(jvmti.0, CAPABILITIES.as_ptr())
        });
        if result != 0 {
            jvmti.dispose();
            return Err(result);
        }
        Ok(jvmti)
    }

    /// Bytes of heap in use, garbage included.
    pub(super) fn heap_in_use(&self) -> Option<u64> {
        let class = self.jni.find_class(c"java/lang/Runtime")?;
        let runtime = self
            .jni
            .static_object(&class, c"getRuntime", c"()Ljava/lang/Runtime;")?;
        let total = self.jni.call_long(&class, &runtime, c"totalMemory")?;
        let free = self.jni.call_long(&class, &runtime, c"freeMemory")?;
        Some(total.saturating_sub(free))
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // All tags go with it.
        self.jvmti.dispose();
        detach(self.vm);
    }
}

fn detach(vm: Vm) {
    // SAFETY: a JVM is never freed, and this is the index of DetachCurrentThread.
    let detach: Option<unsafe extern "C" fn(Object) -> c_int> = unsafe { function(vm.0, 5) };
    if let Some(detach) = detach {
        // SAFETY: the thread is attached, and has no Java frames.
        let _ = unsafe { detach(vm.0) };
    }
}

impl Jni {
    fn find_class(self, name: &CStr) -> Option<Local> {
        type Find = unsafe extern "C" fn(Object, *const c_char) -> Reference;
        // SAFETY: the environment of the calling thread, and the index of FindClass.
        let find: Find = unsafe { function(self.0, 6) }?;
        // SAFETY: a C string.
        let class = unsafe { find(self.0, name.as_ptr()) };
        if class.is_null() {
            self.clear();
        }
        Local::new(self, class)
    }

    fn static_object(self, class: &Local, name: &CStr, signature: &CStr) -> Option<Local> {
        type Call =
            unsafe extern "C" fn(Object, Reference, *const c_void, *const c_void) -> Reference;
        let method = self.method(113, class, name, signature)?;
        // SAFETY: the environment of the calling thread, and the index of CallStaticObjectMethodA.
        let call: Call = unsafe { function(self.0, 116) }?;
        // SAFETY: the method belongs to the class and takes nothing.
        let object = unsafe { call(self.0, class.reference, method, core::ptr::null()) };
        self.clear();
        Local::new(self, object)
    }

    fn call_long(self, class: &Local, object: &Local, name: &CStr) -> Option<u64> {
        type Call = unsafe extern "C" fn(Object, Reference, *const c_void, *const c_void) -> i64;
        let method = self.method(33, class, name, c"()J")?;
        // SAFETY: the environment of the calling thread, and the index of CallLongMethodA.
        let call: Call = unsafe { function(self.0, 54) }?;
        // SAFETY: the method belongs to the object's class and takes nothing.
        let value = unsafe { call(self.0, object.reference, method, core::ptr::null()) };
        self.clear();
        u64::try_from(value).ok()
    }

    fn method(
        self,
        place: usize,
        class: &Local,
        name: &CStr,
        signature: &CStr,
    ) -> Option<*const c_void> {
        type GetMethod =
            unsafe extern "C" fn(Object, Reference, *const c_char, *const c_char) -> *const c_void;
        // SAFETY: callers pass the index of GetMethodID or GetStaticMethodID.
        let get: GetMethod = unsafe { function(self.0, place) }?;
        // SAFETY: a live class, and C strings.
        let method = unsafe { get(self.0, class.reference, name.as_ptr(), signature.as_ptr()) };
        if method.is_null() {
            self.clear();
        }
        (!method.is_null()).then_some(method)
    }

    /// Announces many references: a JVM that checks its callers would print a warning.
    pub(super) fn expect_references(self) {
        const MOST: c_int = 60_000;
        // SAFETY: the environment of the calling thread, and the index of EnsureLocalCapacity.
        let ensure: Option<unsafe extern "C" fn(Object, c_int) -> c_int> =
            unsafe { function(self.0, 26) };
        if let Some(ensure) = ensure {
            // SAFETY: as above.
            let _ = unsafe { ensure(self.0, MOST) };
            self.clear();
        }
    }

    pub(super) fn superclass(self, class: &Local) -> Option<Local> {
        type GetSuper = unsafe extern "C" fn(Object, Reference) -> Reference;
        // SAFETY: the environment of the calling thread, and the index of GetSuperclass.
        let get: GetSuper = unsafe { function(self.0, 10) }?;
        // SAFETY: a live class.
        let above = unsafe { get(self.0, class.reference) };
        Local::new(self, above)
    }
}

/// An array of the JVM's, of references or of fields.
pub(super) struct Items {
    memory: JvmMemory<Reference>,
    count: usize,
}

impl Items {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn get(&self, index: usize) -> Option<Reference> {
        if index >= self.count {
            return None;
        }
        let place = self.memory.start.wrapping_add(index);
        // SAFETY: one of the `count` items.
        Some(unsafe { place.read() })
    }

    /// One of them, as a reference that ends on drop. Each may be taken once.
    pub(super) fn take(&self, jni: Jni, index: usize) -> Option<Local> {
        Local::new(jni, self.get(index)?)
    }

    /// One of them, as a reference that ends when the thread is detached.
    pub(super) fn borrow(&self, jni: Jni, index: usize) -> Option<ManuallyDrop<Local>> {
        Local::new(jni, self.get(index)?).map(ManuallyDrop::new)
    }
}

impl Jvmti {
    fn items(self, place: usize) -> Option<Items> {
        type Get = unsafe extern "C" fn(Object, *mut c_int, *mut *mut Reference) -> c_int;
        // SAFETY: callers pass the index of GetAllThreads or GetLoadedClasses.
        let get: Get = unsafe { function(self.0, place) }?;
        let (mut count, mut start) = (0, core::ptr::null_mut());
        // SAFETY: writes a number and a pointer to as many references.
        let result = unsafe { get(self.0, &raw mut count, &raw mut start) };
        self.owned(result, count, start)
    }

    fn items_of(self, place: usize, class: &Local) -> Option<Items> {
        type Get =
            unsafe extern "C" fn(Object, Reference, *mut c_int, *mut *mut Reference) -> c_int;
        // SAFETY: callers pass the index of GetClassFields or GetImplementedInterfaces.
        let get: Get = unsafe { function(self.0, place) }?;
        let (mut count, mut start) = (0, core::ptr::null_mut());
        // SAFETY: a live class; writes a number and a pointer to as many items.
        let result = unsafe { get(self.0, class.reference, &raw mut count, &raw mut start) };
        self.owned(result, count, start)
    }

    fn owned(self, result: c_int, count: c_int, start: *mut Reference) -> Option<Items> {
        if result != 0 {
            return None;
        }
        let memory = JvmMemory::new(self, start)?;
        let count = usize::try_from(count).unwrap_or(0);
        Some(Items { memory, count })
    }

    pub(super) fn threads(self) -> Option<Items> {
        self.items(3)
    }

    pub(super) fn classes(self) -> Option<Items> {
        self.items(77)
    }

    pub(super) fn fields(self, class: &Local) -> Option<Items> {
        self.items_of(52, class)
    }

    pub(super) fn interfaces(self, class: &Local) -> Option<Items> {
        self.items_of(53, class)
    }

    /// Name and type of a field of a class, and whether it is static.
    pub(super) fn field(
        self,
        class: &Local,
        fields: &Items,
        index: usize,
    ) -> Option<(JvmMemory<c_char>, JvmMemory<c_char>, bool)> {
        type Texts = *mut *mut c_char;
        type GetName =
            unsafe extern "C" fn(Object, Reference, Reference, Texts, Texts, Texts) -> c_int;
        type GetModifiers = unsafe extern "C" fn(Object, Reference, Reference, *mut c_int) -> c_int;
        let field = fields.get(index)?;
        // SAFETY: the environment is alive, and this is the index of GetFieldName.
        let get: GetName = unsafe { function(self.0, 59) }?;
        let (mut name, mut kind) = (core::ptr::null_mut(), core::ptr::null_mut());
        let (into, of) = (&raw mut name, &raw mut kind);
        let none = core::ptr::null_mut();
        // SAFETY: a field of a live class; writes two texts.
        let result = unsafe { get(self.0, class.reference, field, into, of, none) };
        let name = JvmMemory::new(self, name).filter(|_| result == 0)?;
        let kind = JvmMemory::new(self, kind)?;
        // SAFETY: the environment is alive, and this is the index of GetFieldModifiers.
        let get: GetModifiers = unsafe { function(self.0, 61) }?;
        let mut modifiers = 0;
        // SAFETY: as above; writes a number.
        let result = unsafe { get(self.0, class.reference, field, &raw mut modifiers) };
        (result == 0).then_some((name, kind, modifiers & STATIC != 0))
    }

    pub(super) fn tag(self, object: &Local) -> i64 {
        type GetTag = unsafe extern "C" fn(Object, Reference, *mut i64) -> c_int;
        // SAFETY: the environment is alive, and this is the function's index.
        let get: Option<GetTag> = unsafe { function(self.0, 105) };
        let mut tag = 0;
        // SAFETY: a live reference; writes a number.
        let result = get.map(|get| unsafe { get(self.0, object.reference, &raw mut tag) });
        if result == Some(0) { tag } else { 0 }
    }

    pub(super) fn set_tag(self, object: &Local, tag: i64) {
        type SetTag = unsafe extern "C" fn(Object, Reference, i64) -> c_int;
        // SAFETY: the environment is alive, and this is the function's index.
        let set: Option<SetTag> = unsafe { function(self.0, 106) };
        if let Some(set) = set {
            // SAFETY: a live reference.
            let _ = unsafe { set(self.0, object.reference, tag) };
        }
    }

    /// The name of a thread.
    pub(super) fn thread_name(self, jni: Jni, thread: &Local) -> Option<JvmMemory<c_char>> {
        type GetInfo = unsafe extern "C" fn(Object, Reference, *mut ThreadInfo) -> c_int;
        // SAFETY: the environment is alive, and this is the index of GetThreadInfo.
        let get: GetInfo = unsafe { function(self.0, 8) }?;
        let mut info = ThreadInfo {
            name: core::ptr::null_mut(),
            priority: 0,
            is_daemon: 0,
            group: core::ptr::null_mut(),
            loader: core::ptr::null_mut(),
        };
        // SAFETY: a live thread; writes the information.
        let result = unsafe { get(self.0, thread.reference, &raw mut info) };
        if result != 0 {
            return None;
        }
        drop(Local::new(jni, info.group));
        drop(Local::new(jni, info.loader));
        JvmMemory::new(self, info.name)
    }

    /// Passes every reference of the heap to the callback. The JVM stands still meanwhile.
    pub(super) fn follow_references(self, callbacks: &Callbacks, user: *mut c_void) -> c_int {
        type Follow = unsafe extern "C" fn(
            Object,
            c_int,
            Reference,
            Reference,
            *const Callbacks,
            *const c_void,
        ) -> c_int;
        // SAFETY: the environment is alive, and this is the function's index.
        let follow: Option<Follow> = unsafe { function(self.0, 114) };
        let none = core::ptr::null_mut();
        // SAFETY: the callbacks have their types, and `user` lives until the call returns.
        follow.map_or(NOT_AVAILABLE, |follow| unsafe {
            follow(self.0, 0, none, none, callbacks, user)
        })
    }

    /// Passes the numbers in all objects, garbage too, of classes with a tag to the callback.
    pub(super) fn iterate_heap(self, callbacks: &Callbacks, user: *mut c_void) -> c_int {
        type Iterate = unsafe extern "C" fn(
            Object,
            c_int,
            Reference,
            *const Callbacks,
            *const c_void,
        ) -> c_int;
        // SAFETY: the environment is alive, and this is the function's index.
        let iterate: Option<Iterate> = unsafe { function(self.0, 115) };
        let none = core::ptr::null_mut();
        // SAFETY: as above.
        iterate.map_or(NOT_AVAILABLE, |iterate| unsafe {
            iterate(self.0, TAGGED_CLASSES, none, callbacks, user)
        })
    }
}
