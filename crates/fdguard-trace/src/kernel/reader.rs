//! The thread that reads the kernel's events, and the reader of one process's events.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use fdguard_core::TraceKey;

use super::shared::KernelTrace;
use crate::ring::DrainedEvents;
use crate::source::EventReader;

/// The longest and the shortest interval between reads of the kernel's buffer.
const LONGEST: Duration = Duration::from_millis(16);
const SHORTEST: Duration = Duration::from_millis(1);
/// If this many events came at once, the buffer is read twice as often.
const BUSY: usize = 4096;
/// Reads until it is dropped.
#[derive(Debug)]
pub(super) struct DrainThread {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DrainThread {
    pub(super) fn start(trace: Arc<KernelTrace>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("fdguard-drain".to_owned())
            .spawn(move || {
                let mut pause = SHORTEST;
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    let count = trace.drain();
                    trace.reconcile();
                    pause = if count > BUSY { pause / 2 } else { pause * 2 };
                    pause = pause.clamp(SHORTEST, LONGEST);
                }
            })?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for DrainThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It stops at its next check; if it panicked, the panic was already shown.
            drop(thread.join());
        }
    }
}

/// The events of one program.
#[derive(Debug)]
pub(super) struct KernelReader {
    trace: Arc<KernelTrace>,
    key: TraceKey,
}

impl KernelReader {
    pub(super) fn new(trace: Arc<KernelTrace>, key: TraceKey) -> Self {
        Self { trace, key }
    }
}

impl EventReader for KernelReader {
    fn drain(&mut self, _now: u64, is_end: bool) -> io::Result<DrainedEvents> {
        if is_end {
            // If its end was reported, so was all before it. Thousands may end at once.
            if !self.trace.records().is_over(self.key) {
                self.trace.drain();
            }
            self.trace.wait_for_stacks(self.key);
        }
        let drained = self.trace.take_events(self.key, is_end);
        drained.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
