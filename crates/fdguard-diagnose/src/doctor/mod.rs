//! Gathers the material of a doctor's report: [`fdguard_core::evidence`] draws the conclusions.

mod family;
mod gather;
mod machine;
mod replay;
mod runtime;
mod watch;

pub use gather::{DoctorPlan, DoctorStep, gather};
pub use replay::from_recording;
