//! Gathers the material of a doctor's report and writes it into a bundle.
//!
//! This module only reads and writes: [`fdguard_core::evidence`] draws the conclusions, and
//! [`crate::report`] phrases them.

pub mod bundle;
mod family;
pub mod gather;
mod logs;
mod machine;
mod pieces;
pub mod replay;
mod runtime;
mod watch;
