//! The terminal view of `watch`: verdict, classes, limits and findings.
//!
//! [`WatchViewState`] is what the user chose and what was judged last; [`draw`] shows it, [`run`]
//! is the loop around both. The caller decides when to look, through [`WatchSource`].

mod class_row;
mod draw;
mod phrase;
mod run;
mod sparkline;
mod state;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use draw::draw;
pub use run::{WatchOptions, WatchSource, WatchViewEnd, run};
pub use state::WatchViewState;
