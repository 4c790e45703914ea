//! What an attached library does from time to time: it looks for modules that were loaded since,
//! and whether its tracer is still there.
//!
//! Frequent hooks have a second entry that counts and then jumps to the hook; only references that
//! were rebound lead there, so a preloaded library pays nothing. `dlopen` is not interposed: the
//! loader decides by its caller. `dlsym` with the handle of a library is, because a library is
//! seldom used without it.

#![expect(unsafe_code, reason = "entries in assembly, as the hooks themselves")]

use core::arch::naked_asm;
use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::rebind::{self, Direction};
use super::{adds, loaded, scope, tracer};
use crate::{creator, errno, hook, owner, real, start, sys};

/// Calls between two ticks.
const EVERY: i32 = 16;
/// The loader may fill an entry while it is rebound, so everything is looked at again after this.
const SECOND_LOOK: u64 = 100_000_000;
/// How often the tracer is looked for.
const TRACER: u64 = 2_000_000_000;
/// A child of `vfork` that began before the attach has certainly left this memory after this time.
const VFORK: u64 = 2_000_000_000;

/// Calls that are left until the next tick.
static LEFT: AtomicI32 = AtomicI32::new(0);
/// Whether a thread is in a tick.
static IS_BUSY: AtomicU32 = AtomicU32::new(0);
/// When the second look is due; 0 if it is done.
static LOOK_AT: AtomicU64 = AtomicU64::new(0);
static TRACER_AT: AtomicU64 = AtomicU64::new(0);
static VFORK_AT: AtomicU64 = AtomicU64::new(0);
/// How many modules were loaded at the last walk.
static SEEN_ADDS: AtomicU64 = AtomicU64::new(0);
/// Whether the last walk left a module out because it was being loaded.
static IS_UNFINISHED: AtomicU32 = AtomicU32::new(0);
static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Before the references are rebound.
pub(super) fn prepare() {
    REAL_DLSYM.store(scope::address(c"dlsym"), Ordering::Release);
    adds::find();
}

/// After the references were rebound.
pub(super) fn begin(outcome: &rebind::WalkOutcome) {
    let now = real::now();
    SEEN_ADDS.store(outcome.adds, Ordering::Relaxed);
    IS_UNFINISHED.store(u32::from(outcome.is_unfinished), Ordering::Relaxed);
    LOOK_AT.store(now + SECOND_LOOK, Ordering::Relaxed);
    TRACER_AT.store(now + TRACER, Ordering::Relaxed);
    VFORK_AT.store(now + VFORK, Ordering::Relaxed);
    LEFT.store(0, Ordering::Relaxed);
}

/// In a forked child: no other thread is in a tick.
pub(super) fn forget() {
    IS_BUSY.store(0, Ordering::Relaxed);
}

/// A frequent hook was called this often.
extern "C" fn tick() {
    LEFT.store(EVERY, Ordering::Relaxed);
    let is_ours = super::is_attached() && !start::is_filtered() && owner::is_process();
    if !is_ours || IS_BUSY.swap(1, Ordering::Acquire) != 0 {
        return;
    }
    let error = errno::load();
    work(real::now());
    errno::store(error);
    IS_BUSY.store(0, Ordering::Release);
}

fn work(now: u64) {
    if now >= TRACER_AT.load(Ordering::Relaxed) && super::is_loader_free() {
        TRACER_AT.store(now + TRACER, Ordering::Relaxed);
        // A handler that leaves by `longjmp` must not leave a descriptor behind.
        let is_ended = sys::without_signals(|| {
            let is_gone = tracer::is_gone();
            if is_gone {
                super::end_alone();
                tracer::remove_dir();
            }
            is_gone
        });
        if is_ended {
            return;
        }
    }
    let vfork_at = VFORK_AT.load(Ordering::Relaxed);
    if vfork_at != 0 && now >= vfork_at {
        VFORK_AT.store(0, Ordering::Relaxed);
        owner::trust();
    }
    let look_at = LOOK_AT.load(Ordering::Relaxed);
    let is_due = look_at != 0 && now >= look_at;
    let is_loaded = || adds::now().is_some_and(|adds| adds != SEEN_ADDS.load(Ordering::Relaxed));
    if (is_due || is_loaded()) && super::is_loader_free() {
        creator::look_for_tasks();
        look_again(now);
    } else if look_at != 0 {
        LEFT.store(0, Ordering::Relaxed);
    }
}

/// Rebinds what was loaded or filled since the last walk.
fn look_again(now: u64) {
    if adds::now().is_none() {
        adds::find();
    }
    let settled = SEEN_ADDS.load(Ordering::Relaxed);
    let was_unfinished = IS_UNFINISHED.load(Ordering::Relaxed) != 0;
    // A handler that leaves by `longjmp` must not leave the loader's lock behind.
    let outcome =
        sys::without_signals(|| rebind::walk(Direction::Attach, was_unfinished.then_some(settled)));
    SEEN_ADDS.store(outcome.adds, Ordering::Relaxed);
    IS_UNFINISHED.store(u32::from(outcome.is_unfinished), Ordering::Relaxed);
    // A module that is being loaded, or was just loaded, is looked at once more.
    let is_done = outcome.adds == settled && !outcome.is_unfinished;
    let next = if is_done { 0 } else { now + SECOND_LOOK };
    LOOK_AT.store(next, Ordering::Relaxed);
    if !is_done {
        LEFT.store(0, Ordering::Relaxed);
    }
    if let Some(mapping) = start::current() {
        mapping.unhooked(outcome.unhooked);
    }
}

/// The program asks a library for a function, so it may have loaded it since.
extern "C" fn look_for_modules() {
    let is_ours = super::is_attached() && !start::is_filtered() && owner::is_process();
    if !is_ours || IS_BUSY.swap(1, Ordering::Acquire) != 0 {
        return;
    }
    let error = errno::load();
    let known = SEEN_ADDS.load(Ordering::Relaxed);
    // The loader's own function would wait for the same locks.
    let is_free = super::is_loader_free();
    if is_free && adds::now().unwrap_or_else(loaded::adds) != known {
        look_again(real::now());
    }
    errno::store(error);
    IS_BUSY.store(0, Ordering::Release);
}

/// The loader finds out who asks by the return address, so this leaves by a jump.
// SAFETY: two words and one more leave the stack aligned for the call; what is pushed is popped.
#[unsafe(naked)]
unsafe extern "C" fn dlsym() {
    naked_asm!(
        // RTLD_DEFAULT is 0, RTLD_NEXT is -1.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {look}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "jmp rax",
        look = sym look_for_modules,
        real = sym REAL_DLSYM,
    );
}

hook::preserves_arguments! {
    /// Saves the registers with arguments around a tick.
    fn tick_for_asm() calls tick
}

/// Hooks with an entry that counts.
macro_rules! counted {
    ($($name:literal => $module:ident::$function:ident,)*) => {
        $(
            mod $function {
                use super::*;

                /// Counts, then is the hook.
                // SAFETY: changes no register and leaves by a jump.
                #[unsafe(naked)]
                pub(super) unsafe extern "C" fn entry() {
                    naked_asm!(
                        "sub dword ptr [rip + {left}], 1",
                        "jns 2f",
                        "call {tick}",
                        "2:",
                        "jmp {hook}",
                        left = sym LEFT,
                        tick = sym tick_for_asm,
                        hook = sym hook::$module::$function,
                    );
                }
            }
        )*

        /// The entry that takes the place of the hook of this name.
        pub(super) fn hook(name: &[u8]) -> Option<usize> {
            match name {
                b"dlsym" => Some(dlsym as unsafe extern "C" fn() as usize),
                $($name => Some($function::entry as unsafe extern "C" fn() as usize),)*
                _ => None,
            }
        }
    };
}

counted! {
    b"open" => file::open,
    b"open64" => file::open64,
    b"openat" => file::openat,
    b"openat64" => file::openat64,
    b"fopen" => stream::fopen,
    b"fopen64" => stream::fopen64,
    b"opendir" => stream::opendir,
    b"socket" => descriptor::socket,
    b"dup" => descriptor::dup,
    b"pipe" => descriptor::pipe,
    b"pipe2" => descriptor::pipe2,
    b"eventfd" => descriptor::eventfd,
    b"accept" => wait::accept,
    b"accept4" => wait::accept4,
    b"poll" => wait::poll,
    b"epoll_wait" => wait::epoll_wait,
    b"close" => close::close,
    b"fclose" => close::fclose,
}
