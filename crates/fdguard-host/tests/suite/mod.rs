//! By what they need.

mod session_bash;
mod session_support;
