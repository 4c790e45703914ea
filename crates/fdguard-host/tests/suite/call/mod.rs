//! Calls against real servers in this process.

mod abort;
mod bad_peers;
mod keep;
mod kit;
mod peer;
mod race;
mod rules;
mod wake;
mod wrong_closer;
