//! One interpreter on a terminal or pipes, with the keeper of its process tree: commands with exact
//! ends, interrupts, resets, and a close with proof.
//!
//! Each session is one task that owns its program. On a terminal it costs the host two descriptors:
//! the terminal's master and the control socket of its keeper. On pipes it costs three (both
//! outputs and the control socket), or four if the interpreter reads commands from its input.

mod actor;
mod collect;
mod command;
mod end;
mod escalate;
mod fd_count;
mod flow;
mod hub;
mod hub_address;
mod keeper;
mod message;
mod program;
mod running;
mod scratch;
mod shared;
mod streams;
mod text_file;
mod types;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fdguard_process::tree::{EnforcedLimits, Tree};
use tokio::sync::{mpsc, oneshot};

use actor::{Actor, Job, Request};
pub(crate) use collect::Collector;
pub use hub::Hub;
use keeper::Place;
#[cfg(feature = "fuzzing")]
pub use message::fuzz_message;
pub use program::PYTHON_DRIVER;
use running::Recipe;
pub(crate) use scratch::dirs as scratch_dirs;
use shared::Shared;
pub use types::{
    Channel, Chunk, DroppedOutput, Exec, ExecOutcome, ExecOutput, ExecResult, ExecStream, Repl,
    SessionLimits, SessionProgram, SessionSpec,
};

use crate::Error;
use crate::receipt::{Receipt, SessionEndReason};
use crate::warm::WarmPool;

/// A session. All methods take `&self`; one command runs at a time. Dropped without a close, it is
/// closed in the background.
#[derive(Debug)]
pub struct Session {
    id: String,
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<Shared>,
}

impl Session {
    /// Starts the program and waits until it is ready for a command. On failure nothing is left.
    pub async fn start(id: &str, spec: SessionSpec, hub: &Arc<Hub>) -> Result<Self, Error> {
        Self::start_warm(id, spec, hub, None).await
    }

    /// The same, but takes Python from this pool if possible.
    pub async fn start_warm(
        id: &str,
        spec: SessionSpec,
        hub: &Arc<Hub>,
        pool: Option<Arc<WarmPool>>,
    ) -> Result<Self, Error> {
        let place = Place::default();
        let recipe = Recipe {
            id: id.to_owned(),
            spec,
            hub: Arc::clone(hub),
            pool,
            place: place.clone(),
        };
        let (running, ready) = recipe.start(recipe.spec.dir.clone()).await?;
        let shared = Arc::new(Shared::new(place));
        let dir = ready.dir.map(PathBuf::from);
        let actor = Actor::new(recipe, Arc::clone(&shared), running, dir);
        let (requests, inbox) = mpsc::unbounded_channel();
        drop(tokio::spawn(actor.live(inbox)));
        Ok(Self {
            id: id.to_owned(),
            requests,
            shared,
        })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs a command to its end, timeout or interrupt. If `live` is given, output is also sent
    /// there as it arrives: a receiver that does not read blocks the program, a dropped receiver
    /// does not. If this future is dropped, the command is interrupted, and the next one waits for
    /// its end.
    pub async fn exec(
        &self,
        command: Exec,
        live: Option<mpsc::Sender<Chunk>>,
    ) -> Result<ExecResult, Error> {
        let turn = Arc::clone(&self.shared.turn);
        let turn = match Arc::clone(&turn).try_acquire_owned() {
            Ok(turn) => turn,
            Err(_taken) if self.shared.is_abandoned() => turn
                .acquire_owned()
                .await
                .map_err(|_never_closed| self.error_ended())?,
            Err(_taken) => {
                let busy = self.shared.busy_for().unwrap_or_default();
                return Err(Error::Busy {
                    id: self.id.clone(),
                    for_ms: u64::try_from(busy.as_millis()).unwrap_or(u64::MAX),
                });
            }
        };
        let mut wishes = self.shared.wishes.subscribe();
        let before = *wishes.borrow_and_update();
        self.shared.start();
        let (reply, answer) = oneshot::channel();
        let job = Job {
            command,
            live,
            reply,
            wishes,
            before,
            turn,
        };
        let sent = self.requests.send(Request::Exec(Box::new(job)));
        if sent.is_err() {
            self.shared.finish();
            return Err(self.error_ended());
        }
        let mut abandoning = Abandoning(Some(&self.shared));
        let answer = answer.await;
        abandoning.0 = None;
        answer.unwrap_or_else(|_lost| {
            self.shared.finish();
            Err(self.error_ended())
        })
    }

    /// Interrupts the running command: the foreground group receives INT, then harder signals. The
    /// waiting `exec` returns with [`ExecOutcome::Interrupted`] and its output so far. False if no
    /// command runs.
    pub async fn interrupt(&self) -> Result<bool, Error> {
        if self.shared.busy_for().is_some() {
            self.shared
                .wishes
                .send_modify(|wishes| wishes.interrupts += 1);
            return Ok(true);
        }
        if self.shared.has_ended() {
            return Err(self.error_ended());
        }
        Ok(false)
    }

    /// Ends the program and restarts it: same id, same directory. A running command is abandoned.
    pub async fn reset(&self) -> Result<Receipt, Error> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(Request::Reset(reply));
        sent.map_err(|_closed| self.error_ended())?;
        self.shared.wishes.send_modify(|wishes| wishes.resets += 1);
        answer.await.map_err(|_closed| self.error_ended())?
    }

    /// Ends the tree and releases everything. A second call returns the same receipt.
    pub async fn close(&self, reason: SessionEndReason) -> Receipt {
        let (reply, answer) = oneshot::channel();
        // Fails if it is already closed: then its receipt exists, and the dropped reply shows it.
        drop(self.requests.send(Request::Close(reason, reply)));
        self.shared
            .wishes
            .send_modify(|wishes| wishes.is_closing = true);
        match answer.await {
            Ok(receipt) => receipt,
            Err(_closed) => {
                let receipt = self.shared.receipt();
                receipt.unwrap_or_else(|| end::unknown(&self.id, reason))
            }
        }
    }

    /// Whether the kernel killed its program because the memory of its cgroup was exhausted.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.shared.place.is_starved()
    }

    /// Pid of the program; absent if it has ended.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        if self.shared.has_ended() {
            return None;
        }
        self.shared.place.with(|tree| tree.main())
    }

    /// The keeper of its processes, while it has one.
    #[must_use]
    pub fn keeper(&self) -> Option<u32> {
        self.shared.place.with(|tree| tree.keeper())
    }

    /// How long the current command has been running; `None` if there is none.
    #[must_use]
    pub fn busy_for(&self) -> Option<Duration> {
        self.shared.busy_for()
    }

    /// Time since the last command ended, or since the start.
    #[must_use]
    pub fn idle_for(&self) -> Duration {
        self.shared.idle_for()
    }

    /// Resolves when the program has ended by itself (`exit`, a crash), or at the latest when the
    /// session is closed.
    pub async fn ended(&self) {
        self.shared.wait_for_end().await;
    }

    /// All live processes, the program first.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        self.shared
            .place
            .with(|tree: &mut Tree| tree.members())
            .unwrap_or_default()
    }

    /// What enforces its limits; absent if its program has ended.
    #[must_use]
    pub fn enforced(&self) -> Option<EnforcedLimits> {
        self.shared.place.with(|tree| tree.enforced())
    }

    fn error_ended(&self) -> Error {
        Error::Ended {
            id: self.id.clone(),
            why: self.shared.why_ended(),
        }
    }
}

/// Signals that the caller of a command is gone.
struct Abandoning<'s>(Option<&'s Arc<Shared>>);

impl Drop for Abandoning<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.abandon();
        }
    }
}
