//! Messages as lines on two streams. Replaces the library's transport: every request is answered
//! with its id, even if it is invalid, and batches are accepted if the protocol version allows
//! them.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::RoleServer;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex as AsyncMutex;

use super::batch::Batches;
use super::intake::{self, Intake, Refusal};

/// The longest message. A longer line is passed over.
const LONGEST: usize = 64 << 20;

/// The two streams of a client.
pub(super) struct Lines<R, W> {
    input: BufReader<R>,
    /// The start of a line: `receive` may be dropped at any time and continues with it.
    line: Vec<u8>,
    /// The rest of a line that was too long is passed over.
    is_too_long: bool,
    /// Messages that the library has not taken yet.
    waiting: VecDeque<RxJsonRpcMessage<RoleServer>>,
    /// Whether the client's protocol version has batches.
    has_batches: bool,
    output: Arc<Outbox<W>>,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin + Send + 'static> Lines<R, W> {
    pub(super) fn new(input: R, output: W) -> Self {
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            is_too_long: false,
            waiting: VecDeque::new(),
            has_batches: false,
            output: Arc::new(Outbox {
                writer: AsyncMutex::new(Some(output)),
                batches: Mutex::default(),
            }),
        }
    }

    /// The next complete line; `None` at the end of the input.
    async fn next_line(&mut self) -> Option<Vec<u8>> {
        loop {
            // Each part is taken as soon as it is read, so that nothing is lost if this future is
            // dropped.
            let here = self.input.fill_buf().await.ok()?;
            if here.is_empty() {
                return None;
            }
            let end = here.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(here.len(), |end| end + 1);
            self.is_too_long |= self.line.len() + count > LONGEST;
            if self.is_too_long {
                self.line = Vec::new();
            } else {
                self.line
                    .extend_from_slice(here.get(..count).unwrap_or_default());
            }
            self.input.consume(count);
            if end.is_some() && !std::mem::take(&mut self.is_too_long) {
                return Some(std::mem::take(&mut self.line));
            }
        }
    }

    /// Processes a line: messages for the library, or an error answered here.
    fn take(&mut self, line: &[u8]) {
        match intake::read(line) {
            // As in the library: an answer to invalid JSON could be answered in turn, forever.
            Err(refusal) if refusal.is_unreadable() => {}
            Err(refusal) => self.write(refusal.to_json()),
            Ok(Intake::One(message)) => self.take_one(message),
            Ok(Intake::Batch(messages)) if self.has_batches => self.take_batch(messages),
            Ok(Intake::Batch(_)) => {
                let why = "batches are supported only in protocol version 2025-03-26";
                self.write(Refusal::invalid(Value::Null, why).to_json());
            }
        }
    }

    fn take_one(&mut self, message: Value) {
        if let Err(refusal) = intake::check(&message) {
            return self.write(refusal.to_json());
        }
        if let Some(version) = intake::version(&message) {
            self.has_batches = intake::has_batches(version);
        }
        if let Err(Some(answer)) = self.hand_over(message) {
            self.write(answer);
        }
    }

    fn take_batch(&mut self, messages: Vec<Value>) {
        let (mut waiting, mut answers) = (Vec::new(), Vec::new());
        for message in messages {
            if let Err(refusal) = intake::check_member(&message) {
                answers.push(refusal.to_json());
                continue;
            }
            let id = intake::request_id(&message).cloned();
            let id = id.filter(|_| intake::is_request(&message));
            match self.hand_over(message) {
                Ok(()) => waiting.extend(id),
                Err(answer) => answers.extend(answer),
            }
        }
        let whole = self.output.batches().start(waiting, answers);
        if let Some(answer) = whole {
            self.write(answer);
        }
    }

    /// Passes a message to the library. What it cannot parse is answered here, if it is a request.
    fn hand_over(&mut self, message: Value) -> Result<(), Option<Value>> {
        if message.get("method") == Some(&json!("notifications/cancelled")) {
            let whole = self
                .output
                .batches()
                .forget(&message["params"]["requestId"]);
            if let Some(answer) = whole {
                self.write(answer);
            }
        }
        let id = intake::request_id(&message).cloned();
        let id = id.filter(|_| intake::is_request(&message));
        match serde_json::from_value(message) {
            Ok(message) => {
                self.waiting.push_back(message);
                Ok(())
            }
            Err(error) => {
                Err(id
                    .map(|id| Refusal::invalid(id, format!("invalid message: {error}")).to_json()))
            }
        }
    }

    /// Writes an answer, in a task: `receive` may be dropped at any time, but a line must be
    /// complete.
    fn write(&self, answer: Value) {
        let output = Arc::clone(&self.output);
        // A client that no longer reads is detected elsewhere.
        drop(tokio::spawn(async move { output.write(&answer).await }));
    }
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let output = Arc::clone(&self.output);
        async move {
            let message = serde_json::to_value(&message)?;
            match output.due(message) {
                Some(message) => output.write(&message).await,
                None => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            let line = self.next_line().await?;
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.take(&line);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.output.writer.lock().await.take());
        Ok(())
    }
}

/// The way out: one line at a time.
struct Outbox<W> {
    writer: AsyncMutex<Option<W>>,
    batches: Mutex<Batches>,
}

impl<W: AsyncWrite + Unpin> Outbox<W> {
    /// What to write now for this message: an answer of a batch waits for the others.
    fn due(&self, message: Value) -> Option<Value> {
        let mut batches = self.batches();
        match batches.is_waiting_for(&message) {
            true => batches.push(message),
            false => Some(message),
        }
    }

    fn batches(&self) -> MutexGuard<'_, Batches> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, message: &Value) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut writer = self.writer.lock().await;
        let Some(writer) = writer.as_mut() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        writer.write_all(&line).await?;
        writer.flush().await
    }
}
