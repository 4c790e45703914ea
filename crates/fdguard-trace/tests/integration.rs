//! The tracer against real programs.

mod suite;
