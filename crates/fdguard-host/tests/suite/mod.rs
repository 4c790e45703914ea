//! The tests of the whole crate, one binary.

mod call;
mod session_bash;
mod session_interrupt;
mod session_life;
mod session_output;
mod session_python;
mod session_support;
