//! The host over MCP: the official SDK speaks the protocol, on standard streams or at `/mcp` of the HTTP server, and each client gets a Python and a
//! shell of its own that keep their state and end with it.
//!
//! [`run`] is the whole program on standard streams. What a client opened hangs on one [`ClientGuard`](crate::host::ClientGuard): a connection that
//! ends, an MCP session that is deleted or forgotten, and the end of the host all close the same sessions with receipts.

mod answer;
mod arguments;
mod batch;
mod client;
mod handler;
mod intake;
mod lines;
mod look;
mod output_schema;
mod progress;
mod say;
mod stdio;
mod strangers;
mod tools;
mod trial;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use crate::Roots;

pub use stdio::{StdioLaunch, run};
pub(crate) use web::Web;

/// What MCP clients may.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The `fdguard` command, which looks at processes; without it there are no tools to look.
    pub program: Option<PathBuf>,
    /// Files below these folders may be archived; none may when there is none.
    pub roots: Roots,
    /// An MCP session over HTTP that nobody used for so long is ended.
    pub idle: Duration,
    /// Bytes of output that a result keeps, half from its begin and half from its end: a model reads all of it.
    pub output_cap: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            program: None,
            roots: Roots::default(),
            idle: Duration::from_secs(900),
            output_cap: 64 << 10,
        }
    }
}
