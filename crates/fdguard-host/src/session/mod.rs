//! One interpreter on a terminal or pipes, with the keeper of its tree: commands, their exact ends, interrupts, resets, and a close that is proven.

mod types;

use std::sync::Arc;

use tokio::sync::mpsc;

pub use types::{
    Channel, Chunk, Done, Dropped, Exec, Limits, Outcome, Output, Program, Repl, Spec, Stream,
};

use crate::Error;
use crate::receipt::{Reason, Receipt};

/// What all sessions of a host share: the one socket on which ends of commands arrive.
#[derive(Debug)]
pub struct Hub {}

impl Hub {
    /// Opens the socket and begins to listen, on the runtime that calls.
    pub fn open() -> Result<Arc<Self>, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }
}

/// A session. All methods take `&self`; one command runs at a time.
#[derive(Debug)]
pub struct Session {}

impl Session {
    /// Starts the program and waits until it is ready for a command. When it fails, nothing is left.
    pub async fn start(_id: &str, _spec: Spec, _hub: &Arc<Hub>) -> Result<Self, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Runs a command to its end, its timeout or an interrupt. Output goes to `live` too as it comes, where one is given: who does not take it holds the
    /// program up, who drops the receiver does not.
    pub async fn exec(
        &self,
        _command: Exec,
        _live: Option<mpsc::Sender<Chunk>>,
    ) -> Result<Done, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Interrupts the command that runs: the foreground group gets INT, and harder signals where that does not help. The `exec` that waits for it returns with
    /// [`Outcome::Interrupted`] and what was said so far. False when nothing runs.
    pub async fn interrupt(&self) -> Result<bool, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Ends the program and starts it again: same id, same folder.
    pub async fn reset(&self) -> Result<Receipt, Error> {
        Err(Error::Bad("not built yet".to_owned()))
    }

    /// Ends the tree and releases everything. A second call gives the same receipt again.
    pub async fn close(&self, _reason: Reason) -> Receipt {
        unimplemented!("not built yet")
    }

    /// The program's process; absent when it has ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        None
    }

    /// Whether a command runs, and for how long.
    #[must_use]
    pub fn busy_for(&self) -> Option<std::time::Duration> {
        None
    }

    /// Since the last command ended, or since the start.
    #[must_use]
    pub fn idle_for(&self) -> std::time::Duration {
        std::time::Duration::ZERO
    }

    /// Resolves when the program has ended by itself (`exit`, a crash); never before a close.
    pub async fn ended(&self) {}

    /// Every process of it that lives, the program first.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        Vec::new()
    }
}
