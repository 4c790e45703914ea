//! The thread that writes: it takes batches from the loop and never makes it wait.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::file::StoreFile;
use crate::finding_book::AcceptedFinding;
use crate::history_record::HistoryBatch;
use crate::overview::StoreHealth;

/// Batches that may wait for the disk.
const WAITING: usize = 64;
/// How often old rows are removed.
const TRIM_EVERY: Duration = Duration::from_secs(300);

enum Order {
    Write(Timestamp, HistoryBatch),
    Accept(AcceptedFinding),
    Note(Timestamp, String),
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct StoreWriter {
    orders: Option<SyncSender<Order>>,
    state: Arc<Mutex<WriterState>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreWriter {
    /// Starts the thread.
    pub(crate) fn start(file: StoreFile) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(WAITING);
        let health = StoreHealth {
            enabled: true,
            bytes: file.bytes(),
            ..StoreHealth::default()
        };
        let state = Arc::new(Mutex::new(WriterState { health, lost: None }));
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("fdguard-history".to_owned())
            .stack_size(512 << 10);
        let thread = thread.spawn(move || Writer::new(file, shared).run(&received))?;
        Ok(Self {
            orders: Some(orders),
            state,
            thread: Some(thread),
        })
    }

    /// Hands a batch over; a disk that does not keep up costs the batch.
    pub(crate) fn write(&self, at: Timestamp, batch: HistoryBatch) {
        let rows = batch.rows();
        if rows > 0 {
            self.send(Order::Write(at, batch), rows);
        }
    }

    /// Remembers an accepted finding.
    pub(crate) fn accept(&self, accepted: AcceptedFinding) {
        self.send(Order::Accept(accepted), 1);
    }

    /// Writes down why the rows around this moment are not what they seem.
    pub(crate) fn note(&self, at: Timestamp, why: String) {
        self.send(Order::Note(at, why), 1);
    }

    fn send(&self, order: Order, rows: u64) {
        let Some(orders) = &self.orders else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = orders.try_send(order) {
            lock(&self.state).lose(rows, "the disk does not keep up");
        }
    }

    /// How it fares.
    pub(crate) fn health(&self) -> StoreHealth {
        lock(&self.state).health.clone()
    }
}

impl Drop for StoreWriter {
    /// Waits until everything that was handed over is written.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has nothing more to write.
            drop(thread.join());
        }
    }
}

/// What both ends of the queue know.
#[derive(Debug)]
struct WriterState {
    health: StoreHealth,
    /// Lost since a loss was written down last.
    lost: Option<LostRows>,
}

#[derive(Debug)]
struct LostRows {
    rows: u64,
    why: String,
}

impl WriterState {
    fn lose(&mut self, rows: u64, why: &str) {
        self.health.lost_rows += rows;
        self.health.error = Some(why.to_owned());
        if rows > 0 {
            let why = why.to_owned();
            self.remember(LostRows { rows, why });
        }
    }

    /// Adds to what must be written down.
    fn remember(&mut self, more: LostRows) {
        let Some(lost) = &mut self.lost else {
            self.lost = Some(more);
            return;
        };
        lost.rows += more.rows;
        if !lost.why.contains(&more.why) {
            lost.why = format!("{}; {}", lost.why, more.why);
        }
    }
}

fn lock(state: &Mutex<WriterState>) -> MutexGuard<'_, WriterState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Writer {
    file: StoreFile,
    state: Arc<Mutex<WriterState>>,
    trimmed: Option<Instant>,
}

impl Writer {
    fn new(file: StoreFile, state: Arc<Mutex<WriterState>>) -> Self {
        Self {
            file,
            state,
            trimmed: None,
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        let mut last = None;
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(at, batch) => {
                    self.write(at, &batch);
                    last = Some(at);
                }
                Order::Accept(accepted) => {
                    let accepted = self.file.accept(&accepted);
                    self.note(1, accepted);
                }
                Order::Note(at, why) => {
                    let written = self.file.write_loss(at, 0, &why);
                    self.note(1, written);
                }
            }
        }
        // What was lost after the last batch has no other that could take it along.
        if let Some(at) = last {
            self.write_lost(at);
        }
    }

    fn write(&mut self, at: Timestamp, batch: &HistoryBatch) {
        let is_due = self.trimmed.is_none_or(|last| last.elapsed() >= TRIM_EVERY);
        if is_due {
            self.trimmed = Some(Instant::now());
            let trimmed = self.file.trim(at);
            self.note(0, trimmed);
        }
        let mut written = self.file.write(batch);
        if written.is_err() {
            // The limit of the file may have been reached between two trims.
            written = self.file.trim(at).and_then(|()| self.file.write(batch));
        }
        let is_written = written.is_ok();
        self.note(batch.rows(), written);
        if is_written {
            self.write_lost(at);
        }
    }

    /// Writes down what was lost, by the file or before it came here.
    fn write_lost(&mut self, at: Timestamp) {
        let Some(lost) = lock(&self.state).lost.take() else {
            return;
        };
        if self.file.write_loss(at, lost.rows, &lost.why).is_err() {
            lock(&self.state).remember(lost);
        }
    }

    fn note(&mut self, rows: u64, result: Result<(), super::StoreError>) {
        let bytes = self.file.bytes();
        let mut state = lock(&self.state);
        state.health.bytes = bytes;
        match result {
            Ok(()) => state.health.error = None,
            Err(error) => state.lose(rows, &error.to_string()),
        }
    }
}
