//! The terminal views of `top`, `watch` and `trace`.
//!
//! `app::App` owns what they share: the terminal, the loop, signals, the help and the way out. A
//! view is an `app::View`: it looks, answers keys and draws. Its state needs no terminal, no
//! thread and no clock. The caller supplies the data, through [`top::HostSource`],
//! [`watch::WatchSource`] and `trace::SiteFeed`.

mod app;
mod input;
mod keys;
mod screen;
mod selection;
mod theme;
pub mod top;
#[cfg(feature = "trace")]
pub mod trace;
pub mod watch;
mod widget;

pub use app::ViewEnd;
pub use screen::{DrawTarget, has_terminal};
