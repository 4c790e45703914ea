//! Routes the output of one command into bounded memory and to listeners.

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::collect::Collector;
use super::running::Running;
use super::types::{Chunk, ExecOutput, ExecStream};

/// The output of one command.
#[derive(Debug)]
pub(super) struct Flow {
    stdout: Collector,
    stderr: Option<Collector>,
    live: Option<mpsc::Sender<Chunk>>,
    /// Not taken by the listener yet: nothing more is read until it is.
    pending: Option<Chunk>,
}

impl Flow {
    pub(super) fn new(cap: usize, has_stderr: bool, live: Option<mpsc::Sender<Chunk>>) -> Self {
        Self {
            stdout: Collector::new(cap),
            stderr: has_stderr.then(|| Collector::new(cap)),
            live,
            pending: None,
        }
    }

    /// Adds bytes that were read.
    pub(super) fn push_bytes(&mut self, stream: ExecStream, bytes: &[u8]) {
        match (stream, &mut self.stderr) {
            (ExecStream::Stderr, Some(stderr)) => stderr.push(bytes),
            _ => self.stdout.push(bytes),
        }
        if self.live.is_some() {
            let bytes = bytes::Bytes::copy_from_slice(bytes);
            self.pending = Some(Chunk { stream, bytes });
        }
    }

    /// Whether the listener must take something before more is read.
    pub(super) fn is_held_up(&self) -> bool {
        self.pending.is_some()
    }

    /// Waits until the listener takes the pending chunk, or is gone. Cancel-safe: nothing is lost.
    pub(super) async fn deliver(&mut self) {
        if let Some(live) = &self.live
            && let Ok(room) = live.reserve().await
        {
            if let Some(chunk) = self.pending.take() {
                room.send(chunk);
            }
            return;
        }
        self.unlisten();
    }

    /// Removes the listener.
    pub(super) fn unlisten(&mut self) {
        self.live = None;
        self.pending = None;
    }

    /// Reads everything available. A listener that has not taken it by the deadline does not get
    /// it.
    pub(super) async fn drain(&mut self, running: &Running, room: &mut [u8], deadline: Instant) {
        let mut backlog = running.streams.backlog();
        loop {
            while self.is_held_up() {
                if timeout_at(deadline, self.deliver()).await.is_err() {
                    self.unlisten();
                }
            }
            match running.streams.read_backlog(&mut backlog, room) {
                Some((stream, length)) => {
                    self.push_bytes(stream, room.get(..length).unwrap_or_default());
                }
                None => return,
            }
        }
    }

    /// The collected output.
    pub(super) fn finish(self) -> (ExecOutput, Option<ExecOutput>) {
        (self.stdout.finish(), self.stderr.map(Collector::finish))
    }
}
