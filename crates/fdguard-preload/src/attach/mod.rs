//! The library in a program that was already running: it is loaded by `dlopen`, and begins and ends
//! to record when its tracer asks for it. See decision 082.
//!
//! Between two recordings it is inert: no reference leads to it, and it holds nothing. It stays
//! loaded, because a thread may be inside one of its hooks for any time.

#![expect(unsafe_code, reason = "entries that the tracer calls by name")]

mod adds;
mod hooks;
mod inspector;
mod loaded;
mod rebind;
pub(crate) mod request;
pub(crate) mod scope;
mod tick;
mod tracer;
mod verify;

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use fdguard_wire::AttachAnswer;

use crate::symbols::Symbols;
use crate::{errno, hook, java, protect, real, start, sys};
use loaded::{LoadedModule, NEXT, STOP};
use rebind::Direction;

/// The name of a file with this library, and of the same library in memory.
const NAMES: [&[u8]; 2] = [b"libfdguard_preload.so", b"memfd:fdguard"];

/// Loaded with the program: the environment says what to do.
const PRELOADED: u32 = 0;
/// Loaded later, and not recording.
const INERT: u32 = 1;
/// A thread attaches or detaches.
const CHANGING: u32 = 2;
const ATTACHED: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(PRELOADED);
/// Whether this process was forked from an attached one.
static IS_CHILD: AtomicU32 = AtomicU32::new(0);

/// Whether the library came into a running program.
#[inline]
pub(crate) fn is_late() -> bool {
    STATE.load(Ordering::Relaxed) != PRELOADED
}

/// The library was loaded by `dlopen`.
pub(crate) fn wait_for_request() {
    start::wait_for_request();
    STATE.store(INERT, Ordering::Relaxed);
}

fn is_attached() -> bool {
    STATE.load(Ordering::Acquire) == ATTACHED
}

pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed) != 0
}

/// In a forked child.
pub(crate) fn forked() {
    if is_late() {
        IS_CHILD.store(1, Ordering::Relaxed);
        tick::forget();
        // The thread that was changing it does not exist here.
        let (from, to) = (CHANGING, if start::is_on() { ATTACHED } else { INERT });
        let _ = STATE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Begins to record; see `fdguard_wire::AttachRequest`.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fdguard_attach(request: *const c_void, size: usize) -> c_int {
    let error = errno::load();
    let answer = if request.is_null() {
        AttachAnswer::BadRequest
    } else {
        // SAFETY: the caller passes as many readable bytes as it says.
        begin(unsafe { core::slice::from_raw_parts(request.cast(), size) })
    };
    errno::store(error);
    answer as c_int
}

/// Ends the recording. The arguments are ignored.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fdguard_detach(_: *const c_void, _: usize) -> c_int {
    let error = errno::load();
    let answer = match claim(ATTACHED) {
        Ok(()) => {
            finish(is_loader_free() || !is_child());
            AttachAnswer::Done
        }
        Err(INERT) => AttachAnswer::Done,
        Err(_) => AttachAnswer::Taken,
    };
    errno::store(error);
    answer as c_int
}

/// Makes Node start its inspector; see `fdguard_wire::InspectorRequest`.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
unsafe extern "C" fn fdguard_wake_inspector(request: *const c_void, size: usize) -> c_int {
    let error = errno::load();
    let answer = if request.is_null() {
        fdguard_wire::InspectorAnswer::BadRequest
    } else {
        // SAFETY: the caller passes as many readable bytes as it says.
        inspector::wake(unsafe { core::slice::from_raw_parts(request.cast(), size) })
    };
    errno::store(error);
    answer as c_int
}

/// Whether this copy of the library records: another copy asks.
// SAFETY: a name of fdguard's own.
#[cfg_attr(fdguard_injected, unsafe(no_mangle))]
extern "C" fn fdguard_is_recording() -> c_int {
    let is_changing = STATE.load(Ordering::Acquire) == CHANGING;
    c_int::from(start::is_on() || is_changing)
}

/// Begins a change from this state; the state that it found otherwise.
fn claim(from: u32) -> Result<(), u32> {
    STATE
        .compare_exchange(from, CHANGING, Ordering::AcqRel, Ordering::Acquire)
        .map(drop)
}

fn begin(bytes: &[u8]) -> AttachAnswer {
    if fdguard_wire::AttachRequest::read(bytes).is_none() {
        return AttachAnswer::BadRequest;
    }
    if claim(INERT).is_err() {
        return AttachAnswer::Taken;
    }
    let answer = attach(bytes);
    let state = if answer == AttachAnswer::Done {
        ATTACHED
    } else {
        INERT
    };
    STATE.store(state, Ordering::Release);
    answer
}

/// Every step before the rebinding changes nothing for the program.
fn attach(bytes: &[u8]) -> AttachAnswer {
    if request::keep(bytes).is_none() {
        return AttachAnswer::BadRequest;
    }
    if is_taken() {
        return AttachAnswer::Taken;
    }
    if !scope::find() || !hooks::find_own() {
        return AttachAnswer::Untrusted;
    }
    hook::find();
    if !verify::is_right() {
        return AttachAnswer::Untrusted;
    }
    // It may be a forked child of another attached process, but here the loader has just answered.
    let was_child = IS_CHILD.swap(0, Ordering::Relaxed);
    let Some(mapping) = start::attach() else {
        IS_CHILD.store(was_child, Ordering::Relaxed);
        return AttachAnswer::NoTable;
    };
    start::look_around();
    java::find();
    tracer::note();
    tick::prepare();
    protect::start();
    let outcome = rebind::walk(Direction::Attach, None);
    mapping.unhooked(outcome.unhooked);
    start::inherit_open(mapping);
    tick::begin(&outcome);
    AttachAnswer::Done
}

/// Ends what [`attach`] began. Without `is_rebound` the references stay: the hooks pass calls on.
fn finish(is_rebound: bool) {
    protect::finish();
    if is_rebound {
        sys::without_signals(|| rebind::walk(Direction::Detach, None));
    }
    start::detach(real::now());
    STATE.store(INERT, Ordering::Release);
}

/// The tracer is gone: ends the recording from within a hook.
fn end_alone() {
    if claim(ATTACHED).is_ok() {
        finish(is_loader_free());
    }
}

/// Whether the list of modules can be read without waiting: in a forked child the thread that holds
/// the loader's lock may not exist, and a hook may be in a handler of a signal that interrupted it.
fn is_loader_free() -> bool {
    adds::is_changing().map_or_else(|| !is_child(), |is_changing| !is_changing)
}

/// Whether another copy of the library records in this process.
fn is_taken() -> bool {
    let here = is_taken as fn() -> bool as usize;
    let mut is_taken = false;
    loaded::each(|module| {
        let symbols = module.symbols().filter(|_| !module.contains(here));
        if let Some(symbols) = symbols.filter(|symbols| is_copy(module, symbols)) {
            is_taken |= is_recording(&symbols);
        }
        if is_taken { STOP } else { NEXT }
    });
    is_taken
}

fn is_recording(copy: &Symbols) -> bool {
    let ask = copy.find(c"fdguard_is_recording");
    if ask.is_null() {
        // An older version does not say it.
        return true;
    }
    // SAFETY: the function of this name has this type in every version.
    let ask = unsafe { core::mem::transmute::<*const c_void, extern "C" fn() -> c_int>(ask) };
    ask() != 0
}

/// Whether a module is this library or another copy of it.
fn is_copy(module: &LoadedModule<'_>, symbols: &Symbols) -> bool {
    let name = module.name.to_bytes();
    let is_named = NAMES.iter().any(|part| name.ends_with(part));
    is_named || !symbols.find(fdguard_wire::ATTACH).is_null()
}
