//! The judgement of a check: does a program, or a server that is exercised, return to its baseline?
//!
//! A caller runs the program and hands over what it saw: [`ProgramEnd`] or [`ExercisedServer`]
//! becomes [`CheckEvidence`], and that a [`Proof`].

mod baseline;
mod children;
mod exercise;
mod go;
mod program_end;
mod proof;
mod survey;
#[cfg(test)]
mod tests;

pub use baseline::{CheckBaseline, HeldCounts};
pub use children::{forgive_last_zombies, piles_per_cycle};
pub use exercise::{ExercisedServer, judge_cycles};
pub use program_end::{DescriptorNames, ProgramEnd};
pub use proof::{CheckEvidence, CheckSummary, ExerciseResult, Proof, fails};
pub use survey::Survey;
