//! The Java code that runs in the calling thread, read through JVMTI (HotSpot).
//!
//! JVMTI allocates, locks and waits for garbage collections, and only an attached thread in native
//! code may call it. Called while the JVM itself is running, it would corrupt the thread's state.
//! So it is called only if the stack shows that generated code called a native function outside the
//! JVM, no signal handler is in between, and the JVM's own state of the thread is "in native". See
//! decision 019.

mod call;
mod heap;
mod layout;
mod machine;
mod render;

pub(crate) use call::RawFrame;
pub(crate) use machine::{JavaWalk, find, forget, is_found, walk};
pub(crate) use render::render;
