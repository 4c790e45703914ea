//! BPF programs that report descriptors from inside the kernel, and their loader.
//!
//! [`KernelTracer`] reports what processes open and close, whoever they belong to and however they
//! were built. It needs `CAP_BPF` and `CAP_PERFMON`, or root. When it is dropped, or fdguard is
//! killed, the kernel removes the programs.

pub mod btf;
pub mod call;
mod decode;
mod descriptors;
mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod goroutine;
mod loader;
mod map;
mod object;
mod python;
mod refusal;
mod ring;
mod stack;
mod tracer;
mod types;

pub use descriptors::{DescriptorProgram, WantedRecords};
pub use event::{
    CapturedCode, CapturedStack, Goroutine, KernelEvent, LanguageFrame, MappedFile, Occurrence,
    Registers,
};
pub use goroutine::{GoLayout, GoProbe};
pub use loader::{LoadOptions, LoadedObject, find_types, kernel_types};
pub use map::BpfMap;
pub use object::BpfObject;
pub use python::{PythonLayout, PythonLayoutOffsets};
pub use refusal::LoadRefusal;
pub use stack::{StackMode, StackSlot};
pub use tracer::{KernelTracer, LostCounts, TracerOptions, TracerScope};
pub use types::KernelTypes;
