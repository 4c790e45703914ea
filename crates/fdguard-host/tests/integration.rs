//! Tests on real programs.

mod suite;
