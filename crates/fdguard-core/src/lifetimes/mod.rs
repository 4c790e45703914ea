//! Lifetimes: every open and close of a traced process, and the conclusions from them.
//!
//! A tracer knows when each descriptor was opened, by which call path, and when it was closed. So
//! nothing here depends on how often fdguard sampled, and the end of a program is not evidence: a
//! call path is judged as it was when it last opened something, or when the end began. Idle time is
//! cut out: a program that does nothing proves nothing.
//!
//! [`ProcessLifetimes`] takes in events and returns a [`PathHistory`] per call path, [`course`]
//! judges one history, and [`site`] combines the paths of one line. See decision 051.

pub mod activity;
pub mod advice;
pub mod course;
mod history;
mod process;
pub mod report;
pub mod site;

#[cfg(test)]
mod process_tests;
#[cfg(test)]
pub(crate) mod testing;

pub use course::{ClosedStats, LEAST, PathCourse};
pub use history::{Lifetime, Moment, PathHistory, PathLevel};
pub use process::{PathNumber, Peak, ProcessLifetimes};
pub use site::{JudgedPath, JudgedSite, NamedPath, sites};
