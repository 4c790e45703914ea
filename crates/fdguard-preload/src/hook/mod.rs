//! The entry points: each calls the function that the program meant and tells the recorder what came of it.
//!
//! Between the two nothing is held: a signal handler may leave with `longjmp`, and a thread may be cancelled inside of the
//! call (but a mark in the thread's seat). Functions with a variable number of arguments have the largest fixed number here, which x86-64 passes alike.

mod answer;
mod ask;
mod close;
mod control;
mod descriptor;
mod end;
mod exec;
mod file;
mod fork;
mod limit;
mod module;
mod reap;
mod receive;
mod restrain;
mod shape;
mod spawn;
mod stream;
mod syscall;
mod terminal;
mod thread;
mod transfer;
mod unmap;
mod wait;

use core::ffi::c_int;

use shape::{again, asks, on_descriptor};

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
