//! The floor: pure parsers of /proc, and the identity of a process.
