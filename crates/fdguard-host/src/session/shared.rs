//! State of a session that is visible outside its task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};

use super::keeper::Place;
use crate::receipt::Receipt;

/// Control requests for the running command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) interrupts: u64,
    pub(super) resets: u64,
    pub(super) is_closing: bool,
}

/// The shared state of a session.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) place: Place,
    pub(super) wishes: watch::Sender<Wishes>,
    pub(super) turn: Arc<Semaphore>,
    has_ended: watch::Sender<bool>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    busy_since: Option<Instant>,
    /// The running command's caller is gone; it is being interrupted.
    is_abandoned: bool,
    last_used: Instant,
    why_ended: Option<String>,
    receipt: Option<Receipt>,
}

impl Shared {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            wishes: watch::Sender::default(),
            turn: Arc::new(Semaphore::new(1)),
            has_ended: watch::Sender::new(false),
            state: Mutex::new(State {
                busy_since: None,
                is_abandoned: false,
                last_used: Instant::now(),
                why_ended: None,
                receipt: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self) {
        let mut state = self.lock();
        state.busy_since = Some(Instant::now());
        state.is_abandoned = false;
    }

    pub(super) fn finish(&self) {
        let mut state = self.lock();
        state.busy_since = None;
        state.last_used = Instant::now();
    }

    pub(super) fn abandon(&self) {
        self.lock().is_abandoned = true;
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    pub(super) fn busy_for(&self) -> Option<Duration> {
        self.lock().busy_since.map(|since| since.elapsed())
    }

    pub(super) fn idle_for(&self) -> Duration {
        let state = self.lock();
        match state.busy_since {
            Some(_) => Duration::ZERO,
            None => state.last_used.elapsed(),
        }
    }

    pub(super) fn note_end(&self, why: &str) {
        self.lock().why_ended.get_or_insert_with(|| why.to_owned());
        self.has_ended.send_replace(true);
    }

    pub(super) fn note_start(&self) {
        self.lock().why_ended = None;
        self.has_ended.send_replace(false);
    }

    pub(super) fn note_close(&self, receipt: &Receipt) {
        self.lock().receipt = Some(receipt.clone());
        self.note_end("it was closed");
    }

    pub(super) fn receipt(&self) -> Option<Receipt> {
        self.lock().receipt.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.has_ended.borrow()
    }

    pub(super) fn why_ended(&self) -> String {
        let why = self.lock().why_ended.clone();
        why.unwrap_or_else(|| "its task panicked or was cancelled".to_owned())
    }

    pub(super) async fn wait_for_end(&self) {
        // Fails only if the sender is gone, and it belongs to this struct.
        let mut end = self.has_ended.subscribe();
        let _never = end.wait_for(|ended| *ended).await.is_err();
    }
}
