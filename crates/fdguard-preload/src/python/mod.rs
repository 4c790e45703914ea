//! Which Python code is running in the calling thread, read from the interpreter's memory.
//!
//! [`Runtime::find`] recognises the interpreter once, [`Runtime::walk`] lists the frames of the
//! calling thread, with the GIL or without, and [`Runtime::render`] writes their text while it is
//! certain to be there. Nothing here allocates, locks, panics, sets `errno` or calls Python beyond
//! reading which thread state is this thread's.
//!
//! Why it may read at all: only the calling thread pushes and pops its own frames, it is inside
//! our hook meanwhile, and its frames hold references to their code objects. So what is read is
//! alive and still. It is never right to walk another thread.
//!
//! What is not known is refused, with a reason: a version that is not in the table, a layout that
//! is not the table's. The caller then has native frames only, and a gap.

mod linetable;
mod memory;
mod offsets;
mod record;
mod render;
mod runtime;
mod table;
mod text;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use runtime::{Refusal, Runtime};
pub(crate) use walk::{Place, PythonWalk, RawFrame};
