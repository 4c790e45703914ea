//! What this crate hands to other programs, and takes from them.

mod suite;
