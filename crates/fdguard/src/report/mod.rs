//! What is printed: pure functions from values to text and JSON. Nothing here writes.

pub mod host;
