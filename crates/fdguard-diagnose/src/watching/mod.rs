//! Looks at running processes when it is time, and hands each entry to the judgement and to the
//! recorder.

mod budget;
mod clocks;
mod live;
mod target;
mod trouble;
mod wait;

pub use live::{LiveWatch, OnSignal, WatchPlan, WatchProgress};
