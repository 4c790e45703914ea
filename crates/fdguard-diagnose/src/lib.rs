//! Joins watch, trace and snapshots into diagnoses, and judges a check.

pub mod trace;
