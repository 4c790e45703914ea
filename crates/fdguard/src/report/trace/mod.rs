//! The outputs of a trace report: text, folded stacks, a flame graph, a profile. The web page
//! is [`super::html::trace`].

pub mod answer;
pub mod folded;
pub mod hazard;
pub mod name;
pub mod pprof;
mod protobuf;
pub mod svg;
#[cfg(test)]
pub(crate) mod testing;
pub mod tree;
