//! Gathering what a doctor's report is made of, and writing it into a bundle.
//!
//! Only reading and writing is here: what it means is concluded by [`fdguard_core::evidence`], and
//! put into words by [`crate::report`].

pub mod bundle;
mod family;
pub mod gather;
mod logs;
mod machine;
mod pieces;
pub mod replay;
mod runtime;
mod watch;
