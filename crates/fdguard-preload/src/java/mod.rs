//! Which Java code is running in the calling thread, asked of the machine that runs it (HotSpot, by JVMTI).
//!
//! JVMTI allocates, locks and waits for collections, and may be called only by a thread that is attached and runs native code:
//! called while the machine itself is at work it would corrupt the thread's state. So it is called only when
//! the stack says that generated code called a native function that is not the machine's, no signal handler lies in between,
//! and the machine's own word for the thread says that it is in native code. See decision 019.

mod call;
mod layout;
mod machine;
mod render;

pub(crate) use call::RawFrame;
pub(crate) use machine::{JavaWalk, forget, is_found, walk};
pub(crate) use render::render;
