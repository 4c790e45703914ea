//! All sessions of all clients: caps, leases, the reaper of idle ones, and an end that closes everything.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;

use crate::Error;
use crate::receipt::{Reason, Receipt};
use crate::session::{Chunk, Done, Exec, Spec};

/// What a host may and does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Sessions at a time.
    pub max_sessions: usize,
    /// A session that nobody used for so long is closed.
    pub idle_after: Duration,
    /// How often that is looked at.
    pub reap_every: Duration,
    /// Where the registry and the logs are; absent: no registry.
    pub state: Option<PathBuf>,
    /// Warm interpreters for Python.
    pub warm_python: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_sessions: 32,
            idle_after: Duration::from_secs(900),
            reap_every: Duration::from_secs(60),
            state: None,
            warm_python: true,
        }
    }
}

/// The host. A clone is another handle to the same one.
#[derive(Clone, Debug)]
pub struct Host {}

/// What a list shows of a session.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Info {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub client: Option<String>,
    /// `bash`, `python`, or the program's name.
    pub program: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Milliseconds that its command has been running for.
    pub busy_ms: Option<u64>,
    /// Milliseconds since its last command.
    pub idle_ms: u64,
    /// RFC 3339.
    pub started_at: String,
}

impl Host {
    /// Starts it on the runtime that calls.
    pub async fn start(_options: Options) -> Result<Self, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// A lease for a client: all sessions that it opens end when the lease runs out without a renewal or is ended. With no time it lasts until it is ended.
    pub fn client(&self, _name: Option<&str>, _lease: Option<Duration>) -> Result<String, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Begins a client's lease anew.
    pub fn renew(&self, _client: &str) -> Result<(), Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Ends a client's lease: its sessions are closed.
    pub async fn end_client(&self, _client: &str, _reason: Reason) -> Result<Vec<Receipt>, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Opens a session, and gives its id. At the cap the dead and then the idle beyond their time give way; nobody else does.
    pub async fn open(&self, _client: Option<&str>, _spec: Spec) -> Result<String, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Runs a command in a session.
    pub async fn exec(
        &self,
        _id: &str,
        _command: Exec,
        _live: Option<mpsc::Sender<Chunk>>,
    ) -> Result<Done, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Interrupts what runs in it; false when nothing does.
    pub async fn interrupt(&self, _id: &str) -> Result<bool, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// A new program in the same session.
    pub async fn reset(&self, _id: &str) -> Result<Receipt, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Ends a session.
    pub async fn close(&self, _id: &str, _reason: Reason) -> Result<Receipt, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// All sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<Info> {
        Vec::new()
    }

    /// Takes nothing new and ends everything.
    pub async fn shut_down(&self) -> Vec<Receipt> {
        Vec::new()
    }
}
