//! BPF programs that report descriptors from inside the kernel, and their loader.
//!
//! [`KernelTracer`] reports what processes open and close, whoever they belong to and however they
//! were built. It needs `CAP_BPF` and `CAP_PERFMON`, or root. When it is dropped, or fdguard is
//! killed, the kernel removes the programs.

mod event;
mod python;
mod refusal;
mod tracer;

pub use event::{
    CapturedCode, CapturedStack, Goroutine, KernelEvent, LanguageFrame, Occurrence, Registers,
};
pub use python::{PythonLayout, PythonLayoutOffsets};
pub use refusal::LoadRefusal;
pub use tracer::{KernelTracer, LostCounts, TracerScope};
