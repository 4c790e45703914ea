//! The Python code that runs in the calling thread, read from the interpreter's memory.
//!
//! [`Runtime::find`] recognises the interpreter once, [`Runtime::walk`] lists the frames of the
//! calling thread, with or without the GIL, and [`Runtime::render`] writes their text while it is
//! certain to exist. Nothing here allocates, locks, panics, sets `errno` or calls Python, except to
//! read which thread state belongs to this thread.
//!
//! Reading is safe because only the calling thread pushes and pops its own frames, it is inside the
//! hook meanwhile, and its frames hold references to their code objects. Never walk another thread.
//!
//! Unknown versions and layouts are rejected with a reason. The caller then has only native frames,
//! and a gap.

mod memory;
mod record;
mod render;
mod runtime;
mod text;
mod walk;

#[cfg(test)]
mod tests;

pub(crate) use runtime::Runtime;
pub(crate) use walk::{Place, PythonWalk, RawFrame};
