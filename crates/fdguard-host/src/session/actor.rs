//! The task of a session: it owns the program, and all others send it requests.

use std::path::PathBuf;
use std::sync::Arc;

use fdguard_process::tree::StopPlan;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};

use super::collect::Collector;
use super::end;
use super::keeper::words;
use super::running::{ROOM, Recipe, Running};
use super::shared::{Shared, Wishes};
use super::types::{Chunk, Exec, ExecResult};
use crate::Error;
use crate::receipt::{Receipt, SessionEndReason};

/// A request to a session.
#[derive(Debug)]
pub(super) enum Request {
    Exec(Box<Job>),
    Reset(oneshot::Sender<Result<Receipt, Error>>),
    Close(SessionEndReason, oneshot::Sender<Receipt>),
}

/// A command with all that belongs to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) command: Exec,
    pub(super) live: Option<mpsc::Sender<Chunk>>,
    pub(super) reply: oneshot::Sender<Result<ExecResult, Error>>,
    /// Control requests since the command was submitted.
    pub(super) wishes: watch::Receiver<Wishes>,
    pub(super) before: Wishes,
    /// One command at a time.
    pub(super) turn: OwnedSemaphorePermit,
}

/// The owner of a session's program.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) recipe: Recipe,
    pub(super) shared: Arc<Shared>,
    /// `None` if it could not be restarted.
    pub(super) running: Option<Running>,
    /// The current directory reported by the program.
    pub(super) dir: Option<PathBuf>,
    /// Commands so far.
    pub(super) number: u64,
    /// Output received while no command ran.
    pub(super) earlier: Collector,
    pub(super) room: Vec<u8>,
}

impl Actor {
    pub(super) fn new(
        recipe: Recipe,
        shared: Arc<Shared>,
        running: Running,
        dir: Option<PathBuf>,
    ) -> Self {
        let cap = recipe.spec.output_cap;
        Self {
            recipe,
            shared,
            running: Some(running),
            dir,
            number: 0,
            earlier: Collector::new(cap),
            room: vec![0; ROOM],
        }
    }

    /// Runs until it is closed or the last handle is dropped.
    pub(super) async fn live(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        loop {
            match self.next(&mut requests).await {
                Some(Request::Exec(job)) => self.exec(*job).await,
                Some(Request::Reset(reply)) => {
                    let result = self.restart(SessionEndReason::Reset, end::GENTLY).await;
                    let _unheard = reply.send(result);
                }
                Some(Request::Close(reason, reply)) => {
                    let receipt = self.close(reason).await;
                    let _unheard = reply.send(receipt);
                    return;
                }
                None => {
                    self.close(SessionEndReason::ClientGone).await;
                    return;
                }
            }
        }
    }

    /// Waits for the next request. Meanwhile output is stored as earlier output, so that no writer
    /// blocks, and the end of the program is detected.
    async fn next(&mut self, requests: &mut mpsc::UnboundedReceiver<Request>) -> Option<Request> {
        loop {
            let Some(Running {
                streams, keeper, ..
            }) = &mut self.running
            else {
                return requests.recv().await;
            };
            tokio::select! {
                request = requests.recv() => return request,
                _told = keeper.told() => self.notice_end(),
                (_, length) = streams.read(&mut self.room) => {
                    self.earlier.push(self.room.get(..length).unwrap_or_default());
                }
            }
        }
    }

    /// Notifies all waiters when the program has ended.
    pub(super) fn notice_end(&self) {
        let Some(keeper) = self.running.as_ref().map(|running| &running.keeper) else {
            return;
        };
        match keeper.exit {
            Some(exit) => self
                .shared
                .note_end(&format!("the program ended: {}", words(exit))),
            None if keeper.over.is_some() => self.shared.note_end("its keeper was killed"),
            None => {}
        }
    }

    /// Why there is no program to take a command.
    pub(super) fn ended(&self) -> Error {
        Error::Ended {
            id: self.recipe.id.clone(),
            why: self.shared.why_ended(),
        }
    }

    /// Ends the program and starts it again where it last was.
    pub(super) async fn restart(
        &mut self,
        reason: SessionEndReason,
        how: StopPlan,
    ) -> Result<Receipt, Error> {
        let Some(running) = self.running.take() else {
            return Err(self.ended());
        };
        let ended = self.end(running, how).await;
        let receipt = ended.receipt(&self.recipe.id, reason, 0);
        let dir = self.dir.clone().filter(|dir| dir.is_dir());
        let dir = dir.or_else(|| self.recipe.spec.dir.clone());
        match self.recipe.start(dir).await {
            Ok((running, end)) => {
                self.running = Some(running);
                self.dir = end.dir.map(PathBuf::from);
                self.shared.note_start();
                Ok(receipt)
            }
            Err(error) => {
                let why = format!("restart failed: {error}");
                self.shared.note_end(&why);
                Err(error)
            }
        }
    }

    async fn end(&self, running: Running, how: StopPlan) -> end::SessionEnd {
        let mut ended = end::end(running, how).await;
        if let Some(pool) = self.recipe.pool.as_ref().filter(|_| ended.is_unsure()) {
            ended.finish(pool.end_strays().await);
        }
        ended
    }

    /// Ends the program and releases everything.
    async fn close(&mut self, reason: SessionEndReason) -> Receipt {
        let ended = match self.running.take() {
            Some(running) => self.end(running, end::GENTLY).await,
            None => end::nothing(),
        };
        let receipt = ended.receipt(&self.recipe.id, reason, self.earlier.bytes());
        self.shared.note_close(&receipt);
        receipt
    }
}
