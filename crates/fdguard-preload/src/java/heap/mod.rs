//! Who holds a Java object: a thread of the library asks the JVM for its references at the asked
//! moment. See decision 152.
//!
//! The borrowed thread only starts it. The new thread is attached to the JVM for the time of the
//! walk, as a daemon; the records stay in memory of their own until the tracer has read them.

#![expect(
    unsafe_code,
    reason = "an entry that the tracer calls by name, and a thread"
)]

mod jvm;
mod names;
mod record;
mod room;

use core::ffi::{c_int, c_ulong, c_void};

use fdguard_wire::{JAVA_WALK_MAGIC, JavaWalkHead, JavaWalkRequest, JavaWalkState, WALK_PLACES};

use self::jvm::{Attachment, Items};
use self::record::{LEAF, OWNER, Records};
use self::room::{PAGE, map, unmap};
use super::call::Vm;
use crate::attach::scope;
use crate::real::Real;
use crate::{errno, loader, sys};

const EINVAL: c_int = 22;
const ENOMEM: c_int = 12;
const RT_SIGPROCMASK: usize = 14;
const SET_MASK: usize = 2;
const MONOTONIC: usize = 1;
/// How often to see whether the walk was read, in nanoseconds.
const NAP: u64 = 2_000_000;
/// Signals of faults: ILL, TRAP, BUS, FPE, SEGV. The JVM handles them.
const FAULTS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10;

/// Values that hold nothing.
const LEAVES: [&[u8]; 9] = [
    b"Ljava/lang/String;",
    b"Ljava/lang/Integer;",
    b"Ljava/lang/Long;",
    b"Ljava/lang/Double;",
    b"Ljava/lang/Byte;",
    b"Ljava/lang/Boolean;",
    b"Ljava/lang/Character;",
    b"Ljava/lang/invoke/LambdaForm$Name;",
    b"Ljava/lang/invoke/LambdaForm;",
];
/// Objects with the number of a descriptor, or with the state of one that has.
const OWNERS: [&[u8]; 13] = [
    b"Ljava/io/FileDescriptor;",
    b"Lsun/nio/ch/NioSocketImpl;",
    b"Lsun/nio/ch/SocketChannelImpl;",
    b"Lsun/nio/ch/ServerSocketChannelImpl;",
    b"Lsun/nio/ch/DatagramChannelImpl;",
    b"Lsun/nio/ch/SourceChannelImpl;",
    b"Lsun/nio/ch/SinkChannelImpl;",
    b"Lsun/nio/ch/EPollSelectorImpl;",
    b"Lsun/nio/ch/EventFD;",
    b"Lsun/nio/fs/UnixDirectoryStream;",
    b"Lsun/nio/fs/UnixSecureDirectoryStream;",
    b"Lsun/nio/fs/LinuxWatchService;",
    b"Lsun/nio/fs/LinuxWatchService$Poller;",
];

type Body = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut c_ulong, *const c_void, Body, *mut c_void) -> c_int;
// SAFETY: the types match the manual pages.
static PTHREAD_CREATE: Real<Create> = unsafe { Real::new(c"pthread_create") };
// SAFETY: as above.
static PTHREAD_DETACH: Real<unsafe extern "C" fn(c_ulong) -> c_int> =
    unsafe { Real::new(c"pthread_detach") };

/// The first page of a walk: the head, and behind it the request.
#[repr(C)]
struct Page {
    head: JavaWalkHead,
    request: JavaWalkRequest,
}

/// Starts a walk; see `fdguard_wire::JAVA_WALK`.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fdguard_walk_java(request: *const c_void, size: usize) -> c_int {
    let error = errno::load();
    let request = (!request.is_null())
        // SAFETY: the caller passes as many readable bytes as it says.
        .then(|| unsafe { core::slice::from_raw_parts(request.cast::<u8>(), size) })
        .and_then(JavaWalkRequest::read);
    let answer = match request {
        // The new thread takes none of the program's signals.
        Some(request) => sys::without_signals(|| start(request)),
        None => -EINVAL,
    };
    errno::store(error);
    answer
}

/// Maps the page and starts the thread; returns the page's place.
fn start(request: JavaWalkRequest) -> c_int {
    // In a program that is not traced, nothing comes after the library: ask as an attach does.
    if PTHREAD_CREATE.get().is_none() && !scope::find() {
        return -EINVAL;
    }
    let (Some(create), Some(detach)) = (PTHREAD_CREATE.get(), PTHREAD_DETACH.get()) else {
        return -EINVAL;
    };
    for (at, place) in (0..).zip(WALK_PLACES) {
        let Some(start) = usize::try_from(place).ok().and_then(|at| map(at, PAGE)) else {
            continue;
        };
        let page = start as *mut Page;
        let head = JavaWalkHead {
            magic: JAVA_WALK_MAGIC,
            nonce: request.nonce,
            state: JavaWalkState::Walking as u64,
            ..JavaWalkHead::default()
        };
        // SAFETY: memory that was just mapped.
        unsafe { page.write(Page { head, request }) };
        let mut thread = 0;
        // SAFETY: the body takes the page, which stays mapped until it ends.
        let result = unsafe { create(&raw mut thread, core::ptr::null(), body, page.cast()) };
        if result != 0 {
            unmap(start, PAGE);
            return -result;
        }
        // SAFETY: the thread was just created, and nobody joins it.
        let _ = unsafe { detach(thread) };
        return at;
    }
    -ENOMEM
}

/// All that the thread does.
unsafe extern "C" fn body(page: *mut c_void) -> *mut c_void {
    let mask = !FAULTS;
    let set = &raw const mask as usize;
    // SAFETY: the kernel reads one set; the thread is the library's own.
    let _ = unsafe { sys::call(RT_SIGPROCMASK, [SET_MASK, set, 0, 8, 0, 0]) };
    let page = page.cast::<Page>();
    // SAFETY: `start` has written it; only this thread writes to it, but for the word `taken`.
    let page_of = unsafe { &mut *page };
    let (request, head) = (page_of.request, &mut page_of.head);
    let records = Records::new(usize::try_from(request.bytes).unwrap_or(0));
    let state = match records {
        Some(mut records) => {
            let state = walk(&request, head, &mut records);
            head.is_partial = u64::from(records.is_partial);
            head.nodes = records.nodes.list();
            head.edges = records.edges.list();
            head.roots = records.roots.list();
            head.numbers = records.numbers.list();
            head.text = records.text.list();
            finish(head, state, request.patience);
            drop(records);
            None
        }
        None => Some(JavaWalkState::NoMemory),
    };
    if let Some(state) = state {
        finish(head, state, request.patience);
    }
    unmap(page as usize, PAGE);
    core::ptr::null_mut()
}

/// Says how it ended, and waits until that was read.
fn finish(head: &mut JavaWalkHead, state: JavaWalkState, patience: u64) {
    core::sync::atomic::fence(core::sync::atomic::Ordering::SeqCst);
    // SAFETY: a word of the head.
    unsafe { (&raw mut head.state).write_volatile(state as u64) };
    let end = sys::clock(MONOTONIC).saturating_add(patience.saturating_mul(1_000_000));
    // SAFETY: a word of the head, which the tracer writes through the kernel.
    while unsafe { (&raw const head.taken).read_volatile() } == 0 && sys::clock(MONOTONIC) < end {
        sys::nap(NAP);
    }
}

/// The walk: the numbers first, then the references, then the names.
fn walk(
    request: &JavaWalkRequest,
    head: &mut JavaWalkHead,
    records: &mut Records,
) -> JavaWalkState {
    let created = loader::dlsym(core::ptr::null_mut(), c"JNI_GetCreatedJavaVMs");
    // SAFETY: the address of this function.
    let Some(vm) = (unsafe { Vm::first(created) }) else {
        return JavaWalkState::NoMachine;
    };
    let attachment = match Attachment::new(vm) {
        Ok(attachment) => attachment,
        Err(error) => {
            head.error = u64::from(error.unsigned_abs());
            return JavaWalkState::Refused;
        }
    };
    let in_use = attachment.heap_in_use();
    head.heap = in_use.unwrap_or(0);
    if in_use.is_none_or(|bytes| bytes > request.most_heap) {
        return JavaWalkState::TooLarge;
    }
    let (jvmti, jni) = (attachment.jvmti, attachment.jni);
    jni.expect_references();
    let (Some(classes), Some(threads)) = (jvmti.classes(), jvmti.threads()) else {
        return JavaWalkState::Refused;
    };
    head.classes = classes.len() as u64;
    tag_owners(&attachment, &classes, records);
    let mut error = stopped(
        head,
        |user| jvmti.iterate_heap(&record::number_callbacks(), user),
        records,
    );
    if error == 0 {
        tag_rest(&attachment, &classes, &threads, records);
        let most = request.stop_per_kib.saturating_mul(head.heap >> 10);
        let left = most.max(request.least_stop).saturating_sub(head.stop);
        records.until = sys::clock(MONOTONIC).saturating_add(left);
        error = stopped(
            head,
            |user| jvmti.follow_references(&record::reference_callbacks(), user),
            records,
        );
    }
    if error != 0 {
        head.error = u64::from(error.unsigned_abs());
        return JavaWalkState::Refused;
    }
    records.name_classes(jvmti, jni, &classes);
    records.name_threads(jvmti, jni, &threads);
    records.name_methods(jvmti, jni);
    JavaWalkState::Done
}

/// Measures how long the program stands still.
fn stopped(
    head: &mut JavaWalkHead,
    work: impl FnOnce(*mut c_void) -> c_int,
    records: &mut Records,
) -> c_int {
    let began = sys::clock(MONOTONIC);
    let error = work(records.user());
    head.stop = head
        .stop
        .saturating_add(sys::clock(MONOTONIC).saturating_sub(began));
    error
}

/// Gives a class of owners its tag: its place in the list. Objects get later ones.
fn tag_owners(attachment: &Attachment, classes: &Items, records: &mut Records) {
    let (jvmti, jni) = (attachment.jvmti, attachment.jni);
    for (index, tag) in (0..classes.len()).zip(1_i64..) {
        records.last_tag = tag;
        let Some(class) = classes.borrow(jni, index) else {
            continue;
        };
        let Some(signature) = jvmti.signature(&class) else {
            continue;
        };
        let name = signature.bytes();
        let is_array_of_values = name.len() == 2 && name.first() == Some(&b'[');
        let mut flags = 0;
        if is_array_of_values || LEAVES.contains(&name) {
            flags = LEAF;
        } else if OWNERS.contains(&name) {
            flags = OWNER;
            jvmti.set_tag(&class, tag);
        }
        let _ = records.flags.set(index + 1, flags);
    }
}

/// Gives the other classes and the threads their tags.
fn tag_rest(attachment: &Attachment, classes: &Items, threads: &Items, records: &mut Records) {
    let (jvmti, jni) = (attachment.jvmti, attachment.jni);
    for (index, tag) in (0..classes.len()).zip(1_i64..) {
        let flags = records.flags.get(index + 1).unwrap_or(0);
        if let Some(class) = classes.borrow(jni, index).filter(|_| flags & OWNER == 0) {
            jvmti.set_tag(&class, tag);
        }
    }
    for index in 0..threads.len() {
        if let Some(thread) = threads.borrow(jni, index) {
            records.last_tag += 1;
            jvmti.set_tag(&thread, records.last_tag);
        }
    }
    if let Some(own) = jvmti.thread(jni) {
        records.own_thread = jvmti.tag(&own);
    }
}
