//! The thread that writes: it takes batches from the loop and never makes it wait.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::attachments::Attachments;
use super::file::{StoreError, StoreFile, StoreOptions};
use super::running::RunningNote;
use crate::finding_book::AcceptedFinding;
use crate::history_record::HistoryBatch;
use crate::overview::StoreHealth;

/// Batches that may wait for the disk.
const WAITING: usize = 64;
/// How often old rows are removed.
const TRIM_EVERY: Duration = Duration::from_secs(300);

/// Between two attempts to open a file.
const RETRY: Duration = Duration::from_secs(2);

enum Order {
    Write(Timestamp, HistoryBatch),
    Accept(AcceptedFinding),
    Note(Timestamp, String),
    Running(RunningNote),
    Attach(u64, Timestamp, Attachments),
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
        let health = StoreHealth {
            enabled: true,
            bytes: file.bytes(),
            ..StoreHealth::default()
        };
        Self::spawn(file.options.clone(), Some(file), health)
    }

    /// Starts the thread without a file: it tries to open one again and again.
    pub(crate) fn start_later(options: StoreOptions, why: String) -> std::io::Result<Self> {
        let health = StoreHealth {
            enabled: true,
            error: Some(why),
            ..StoreHealth::default()
        };
        Self::spawn(options, None, health)
    }

    fn spawn(
        options: StoreOptions,
        file: Option<StoreFile>,
        health: StoreHealth,
    ) -> std::io::Result<Self> {
        let (orders, received) = sync_channel(WAITING);
        let state = Arc::new(Mutex::new(WriterState {
            health,
            lost: None,
            begun_anew: Vec::new(),
        }));
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("fdguard-history".to_owned())
            .stack_size(512 << 10);
        let writer = Writer {
            options,
            file,
            state: shared,
            trimmed: None,
            tried: None,
        };
        let thread = thread.spawn(move || writer.run(&received))?;
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

    /// Remembers what was kept for a finding.
    pub(crate) fn attach(&self, finding: u64, at: Timestamp, kept: Attachments) {
        self.send(Order::Attach(finding, at, kept), 1);
    }

    /// Writes down that fdguard serve runs, and which services.
    pub(crate) fn note_running(&self, note: RunningNote) {
        // Without it, the next start knows less. No row of the history is lost.
        self.send(Order::Running(note), 0);
    }

    fn send(&self, order: Order, rows: u64) {
        let Some(orders) = &self.orders else { return };
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = orders.try_send(order) {
            lock(&self.state).lose(rows, "the disk does not keep up");
        }
    }

    /// Why the file was begun anew since the last call. What the loop knows has to be written
    /// again.
    pub(crate) fn take_begun_anew(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).begun_anew)
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
    /// Why the file was begun anew.
    begun_anew: Vec<String>,
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
    options: StoreOptions,
    /// `None` while it cannot be opened.
    file: Option<StoreFile>,
    state: Arc<Mutex<WriterState>>,
    trimmed: Option<Instant>,
    /// When opening it failed last.
    tried: Option<Instant>,
}

impl Writer {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut last = None;
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(at, batch) => {
                    self.trim_if_due(at);
                    self.write(at, batch.rows(), |file| {
                        // The limit of the file may have been reached between two trims.
                        file.write(&batch)
                            .or_else(|error| retry_after_trim(file, at, error, &batch))
                    });
                    last = Some(at);
                }
                Order::Accept(accepted) => {
                    let at = last.unwrap_or_else(Timestamp::now);
                    self.write(at, 1, |file| file.accept(&accepted));
                }
                Order::Note(at, why) => self.write(at, 1, |file| file.write_loss(at, 0, &why)),
                Order::Attach(finding, at, kept) => {
                    self.write(at, 1, |file| file.attach(finding, at, &kept));
                }
                Order::Running(note) => {
                    self.write(note.moment.at, 0, |file| file.note_running(&note));
                }
            }
        }
        // What was lost after the last batch has no other that could take it along.
        if let Some(at) = last {
            self.write_lost(at);
        }
    }

    /// Writes to the file, which is opened before if need be. One that turns out to be damaged is
    /// set aside, and the rows go into a new one.
    fn write(
        &mut self,
        at: Timestamp,
        rows: u64,
        mut write: impl FnMut(&mut StoreFile) -> Result<(), StoreError>,
    ) {
        self.leave_removed();
        self.open_if_closed(at);
        let Some(file) = &mut self.file else {
            let why = lock(&self.state).health.error.clone();
            lock(&self.state).lose(rows, &why.unwrap_or_default());
            return;
        };
        let mut written = write(file);
        if let Err(error) = &written
            && error.is_damage()
        {
            let why = error.to_string();
            self.begin_anew(at, &why);
            if let Some(file) = &mut self.file {
                written = write(file);
            }
        }
        let is_written = written.is_ok();
        self.note(rows, written);
        if is_written {
            self.write_lost(at);
        }
    }

    fn trim_if_due(&mut self, at: Timestamp) {
        let is_due = self.trimmed.is_none_or(|last| last.elapsed() >= TRIM_EVERY);
        if is_due && self.file.is_some() {
            self.trimmed = Some(Instant::now());
            self.write(at, 0, |file| file.trim(at));
        }
    }

    /// A file that was removed or replaced would be written without anybody who could read it.
    fn leave_removed(&mut self) {
        if self.file.as_ref().is_some_and(StoreFile::is_removed) {
            self.file = None;
            self.tried = None;
            self.tell(
                "the file was removed or replaced while fdguard serve wrote it: what it had is \
                 lost",
            );
        }
    }

    fn open_if_closed(&mut self, at: Timestamp) {
        let is_due = self.tried.is_none_or(|last| last.elapsed() >= RETRY);
        if self.file.is_some() || !is_due {
            return;
        }
        match StoreFile::open(self.options.clone(), at) {
            Ok((file, aside)) => {
                self.file = Some(file);
                self.trimmed = None;
                if let Some(aside) = aside {
                    self.tell(&aside.text());
                }
            }
            Err(error) => {
                self.tried = Some(Instant::now());
                lock(&self.state).health.error = Some(error.to_string());
            }
        }
    }

    /// Sets the damaged file aside.
    fn begin_anew(&mut self, at: Timestamp, why: &str) {
        self.file = None;
        match StoreFile::begin_anew(self.options.clone(), at, why) {
            Ok((file, aside)) => {
                self.file = Some(file);
                self.tell(&aside.text());
            }
            Err(error) => {
                self.tried = Some(Instant::now());
                lock(&self.state).health.error = Some(error.to_string());
            }
        }
    }

    /// What was before is lost: says so in the history and to the loop.
    fn tell(&self, why: &str) {
        let mut state = lock(&self.state);
        state.begun_anew.push(why.to_owned());
        let why = why.to_owned();
        state.remember(LostRows { rows: 0, why });
    }

    /// Writes down what was lost, by the file or before it came here.
    fn write_lost(&mut self, at: Timestamp) {
        let Some(file) = &mut self.file else { return };
        let Some(lost) = lock(&self.state).lost.take() else {
            return;
        };
        if file.write_loss(at, lost.rows, &lost.why).is_err() {
            lock(&self.state).remember(lost);
        }
    }

    fn note(&mut self, rows: u64, result: Result<(), StoreError>) {
        let bytes = self.file.as_ref().map_or(0, StoreFile::bytes);
        let mut state = lock(&self.state);
        state.health.bytes = bytes;
        match result {
            Ok(()) => state.health.error = None,
            Err(error) => state.lose(rows, &error.to_string()),
        }
    }
}

fn retry_after_trim(
    file: &mut StoreFile,
    at: Timestamp,
    error: StoreError,
    batch: &HistoryBatch,
) -> Result<(), StoreError> {
    if error.is_damage() {
        return Err(error);
    }
    file.trim(at).and_then(|()| file.write(batch))
}
