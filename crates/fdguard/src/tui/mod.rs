//! The terminal view of `top`: processes that are near a limit or growing.
//!
//! [`App`] is the state and [`App::update`] the only way to change it: no thread, no clock, no
//! terminal. `view` draws it, [`run`] is the loop around both. The caller supplies the processes,
//! through [`HostSource`].
//!
//! [`watch`] is the view of `watch`, on the same terminal and with the same colours, [`trace`] that
//! of `trace`.

mod app;
mod end_signal;
#[cfg(test)]
pub(crate) mod fixture;
mod input;
mod keys;
mod list;
mod order;
mod run;
mod terminal;
mod theme;
#[cfg(feature = "trace")]
pub mod trace;
mod view;
pub mod watch;

#[cfg(test)]
mod tests;

pub use app::{App, AppEvent, Effect, Holdings};
pub use order::Sort;
pub use run::{HostSource, Options, run};
