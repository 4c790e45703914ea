//! Agent sessions, cleanup and abortable HTTP calls without leaks, over HTTP and MCP.
//!
//! A [`Session`](session::Session) is one interpreter on a terminal or pipes, with the keeper of
//! its process tree. The [`Host`](host::Host) owns all sessions of all clients, enforces limits and
//! leases, and closes each session with a [`Receipt`](receipt::Receipt). A [`Scope`](scope::Scope)
//! holds the resources of one agent. A [`Call`](call::Call) is an HTTP request that any thread can
//! abort. [`http`] and [`mcp`] are thin protocol layers.

pub mod call;
mod document;
pub mod environment;
mod error;
pub mod host;
pub mod http;
pub mod mcp;
pub mod receipt;
mod roots;
pub mod scope;
pub mod session;
pub mod warm;
mod watched_tree;

pub use error::Error;
pub use roots::{OutsideRoots, Roots};
