//! Agent sessions, clean-up and interruptible calls that cannot leak, over HTTP and MCP.
//!
//! A [`Session`](session::Session) is one interpreter on a terminal or pipes with the keeper of its tree. The [`Host`](host::Host) owns all sessions of all
//! clients, keeps caps and leases, and ends each with a [`Receipt`](receipt::Receipt). A [`Scope`](scope::Scope) is everything that one agent
//! holds. A [`Call`](call::Call) is a request that any thread can abort. [`http`] and [`mcp`] are thin: they translate.

pub mod call;
mod document;
pub mod environment;
mod error;
pub mod host;
pub mod http;
pub mod mcp;
mod random;
pub mod receipt;
mod roots;
pub mod scope;
pub mod session;
pub mod warm;
mod watched_tree;

pub use error::Error;
pub use roots::{OutsideRoots, Roots};
