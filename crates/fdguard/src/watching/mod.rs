//! The thin shell around a watch: looks at running processes when it is time, and hands each entry to the
//! judgement and to the recorder.

mod budget;
mod clocks;
mod live;
mod trouble;
mod wait;
mod target;

pub use live::{LiveWatch, OnSignal, WatchPlan, WatchProgress};
