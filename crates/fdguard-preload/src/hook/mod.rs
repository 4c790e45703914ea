//! The entry points. Each calls the real function and reports the result to the recorder.
//!
//! Nothing is held between the two: a signal handler may leave with `longjmp`, and a thread may be
//! cancelled inside the call. The only exception is the mark of the call in flight. Variadic
//! functions take the largest fixed number of arguments here, which x86-64 passes in the same way.

mod answer;
mod apart;
mod ask;
pub(crate) mod close;
pub(crate) mod control;
pub(crate) mod descriptor;
mod end;
mod exec;
pub(crate) mod file;
mod fork;
mod limit;
mod module;
mod reap;
mod receive;
mod restrain;
mod retry;
mod shape;
mod signal;
mod spawn;
pub(crate) mod stream;
pub(crate) mod syscall;
mod terminal;
mod thread;
mod transfer;
mod unmap;
pub(crate) mod wait;

use core::ffi::c_int;

use retry::retry_when_full;
pub(crate) use shape::preserves_arguments;
use shape::{asks, on_descriptor, opens};

/// Looks up what must be known before the program begins.
pub(crate) fn find() {
    syscall::find();
    fork::find();
    spawn::find();
    exec::find();
}

const ENOSYS: c_int = 38;

/// The C library has no such function.
fn missing() -> c_int {
    crate::errno::store(ENOSYS);
    -1
}
