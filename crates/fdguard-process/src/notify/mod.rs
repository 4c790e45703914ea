//! The sd_notify protocol, both ways: [`client`] notifies fdguard's parent, [`server`] receives
//! from the program, [`store`] keeps its descriptors across restarts.
//!
//! No library of systemd is used: the datagrams are the interface. [`message`] reads and writes
//! them and does no I/O.

pub mod client;
pub mod message;
mod same;
pub mod server;
pub mod store;

pub use client::{Heartbeat, NotifyClient};
pub use message::{Access, NotifyMessage, Watchdog};
pub use server::{NotifyServer, ReceivedMessage};
pub use store::{FdStore, StoreChange};
