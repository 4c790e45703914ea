//! The fdguard command as a library: what `main` and the tests call.

pub mod report;
pub mod tui;
