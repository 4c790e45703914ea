//! Looks at running processes when it is time, and hands each entry to the judgement and to the
//! recorder.

mod budget;
mod clocks;
mod live;
mod target;
mod trouble;
mod wait;

pub use live::{LiveWatch, OnSignal, WatchPlan, WatchProgress};
pub use target::{LookDepth, WatchTarget};
pub use trouble::{Trouble, trouble_of};
