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
    health: Arc<Mutex<StoreHealth>>,
    thread: Option<JoinHandle<()>>,
}

impl StoreWriter {
    /// Starts the thread.
    pub(crate) fn start(file: StoreFile) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(WAITING);
        let health = Arc::new(Mutex::new(StoreHealth {
            enabled: true,
            bytes: file.bytes(),
            ..StoreHealth::default()
        }));
        let told = Arc::clone(&health);
        let thread = std::thread::Builder::new()
            .name("fdguard-history".to_owned())
            .stack_size(512 << 10);
        let thread = thread.spawn(move || Writer::new(file, told).run(&received))?;
        Ok(Self {
            orders: Some(orders),
            health,
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
            let mut health = lock(&self.health);
            health.lost_rows += rows;
            health.error = Some("the disk does not keep up".to_owned());
        }
    }

    /// How it fares.
    pub(crate) fn health(&self) -> StoreHealth {
        lock(&self.health).clone()
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

fn lock(health: &Mutex<StoreHealth>) -> MutexGuard<'_, StoreHealth> {
    health.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Writer {
    file: StoreFile,
    health: Arc<Mutex<StoreHealth>>,
    trimmed: Option<Instant>,
    /// Rows lost since the last successful write, and why.
    lost: Option<(u64, String)>,
}

impl Writer {
    fn new(file: StoreFile, health: Arc<Mutex<StoreHealth>>) -> Self {
        Self {
            file,
            health,
            trimmed: None,
            lost: None,
        }
    }

    fn run(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(at, batch) => self.write(at, &batch),
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
        if let Some((rows, why)) = self.lost.take_if(|_| is_written)
            && self.file.write_loss(at, rows, &why).is_err()
        {
            self.lost = Some((rows, why));
        }
    }

    fn note(&mut self, rows: u64, result: Result<(), super::StoreError>) {
        let bytes = self.file.bytes();
        let mut health = lock(&self.health);
        health.bytes = bytes;
        match result {
            Ok(()) => health.error = None,
            Err(error) => {
                let why = error.to_string();
                health.lost_rows += rows;
                health.error = Some(why.clone());
                let before = self.lost.as_ref().map_or(0, |(rows, _)| *rows);
                self.lost = Some((before + rows, why));
            }
        }
    }
}
