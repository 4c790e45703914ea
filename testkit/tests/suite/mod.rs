//! By subject.

mod everything;
mod fake_proc;
mod harness;
mod victims;
