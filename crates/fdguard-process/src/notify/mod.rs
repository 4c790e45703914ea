//! The sd_notify protocol, both ways: [`client`] tells our own parent, [`server`] hears the program, [`store`] keeps what it gives us over restarts.
//!
//! No library of systemd is used: the datagrams are the interface. [`message`] reads and writes them and does no I/O.

pub mod client;
pub mod message;
mod same;
pub mod server;
pub mod store;

pub use client::{Heartbeat, NotifyClient};
pub use message::{Access, NotifyMessage, Watchdog};
pub use server::{NotifyServer, ReceivedMessage};
pub use store::{FdStore, StoreChange};
