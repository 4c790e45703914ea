//! The host over MCP: the official SDK implements the protocol, on standard streams or at `/mcp` of
//! the HTTP server. Each client gets its own Python and shell, which keep their state and end with
//! the client.
//!
//! [`run`] is the whole program on standard streams. Everything a client opened belongs to one
//! [`ClientGuard`](crate::host::ClientGuard): a closed connection, a deleted or expired MCP
//! session, and the host's shutdown all close the same sessions with receipts.

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
mod report_pipe;
mod say;
mod stdio;
mod strangers;
mod tools;
mod trial;
mod web;

use std::path::PathBuf;
use std::time::Duration;

use crate::Roots;

#[cfg(feature = "fuzzing")]
pub use intake::fuzz_message;
pub use stdio::{StdioLaunch, run};
pub(crate) use web::Web;

/// Options for MCP clients.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The `fdguard` command, which examines processes; without it those tools are not offered.
    pub program: Option<PathBuf>,
    /// Files below these directories may be archived; none if it is empty.
    pub roots: Roots,
    /// An MCP session over HTTP that was idle for this long is ended.
    pub idle: Duration,
    /// Bytes of output in a result, half from the start and half from the end: a model reads all of
    /// it.
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
