//! The state and the screens, without a terminal.

mod screen;
mod update;
mod watch;
