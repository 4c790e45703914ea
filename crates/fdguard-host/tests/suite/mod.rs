//! The tests of the whole crate, one binary.

mod warm;
