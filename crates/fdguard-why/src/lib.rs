//! Which object holds a descriptor, and what keeps that object alive.
//!
//! The walker of the injected library leaves the objects of a Python heap and their references in
//! the memory of a copy of the process. A [`Graph`] is made of them, a [`Heap`] adds the memory in
//! which names are read, and [`Heap::answer`] judges: which object owns each descriptor, the way
//! from it to something that lives by itself, or that only an unreachable cycle holds it.
//!
//! Pure code: no I/O, no clock, no unsafe code. The memory is not trusted: any word may be
//! anything, and every loop is bounded.

#![forbid(unsafe_code)]

mod answer;
mod attribute;
mod dict;
mod frame;
mod go;
mod graph;
mod heap;
mod hop;
mod java;
mod layout;
mod memory;
mod node;
mod number;
mod owner;
mod place;
mod search;
mod types;
mod wait;

pub use answer::{Basis, Chain, LastUse, Why};
pub use frame::FrameName;
pub use go::{GoOwner, find_go_owners, go_answers};
pub use graph::{Graph, Index};
pub use heap::{Heap, find_generations, find_interpreter};
pub use hop::Hop;
pub use java::{JavaHeap, JavaRecords};
pub use layout::{COLLECTING, GENERATION, Layout, PERMANENT};
pub use memory::{Memory, Reader};
pub use node::NodeHeap;
pub use number::FirstWalk;
pub use wait::ThreadWait;

/// Where an interpreter is.
#[derive(Clone, Copy, Debug)]
pub struct Interpreter {
    /// Its layout.
    pub layout: Layout,
    /// Its address.
    pub address: u64,
    /// Where its collector has its generations.
    pub generations: u64,
}
