//! The task of one receiver: takes messages from the loop, delivers them in order, retries.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};

use super::client::{PostClient, Undelivered};
use super::outbox::{Message, Outbox};
use super::signature::WebhookSecret;
use crate::overview::DeliveryCounts;

/// Messages on their way to the task.
const WAITING: usize = 64;

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Courier {
    messages: Sender<Message>,
    counts: Arc<Mutex<SenderState>>,
}

/// What is known of a receiver.
#[derive(Clone, Debug, Default)]
pub(crate) struct SenderState {
    counts: DeliveryCounts,
    /// Why the last attempt failed; taken by the loop for its log.
    trouble: Option<String>,
}

impl Courier {
    /// Hands a message over.
    pub(crate) fn send(&self, body: Vec<u8>, is_refresh: bool) {
        let message = Message { body, is_refresh };
        let sent = self.messages.try_send(message);
        // A repetition is repeated anyway.
        if let Err(TrySendError::Full(_)) = sent
            && !is_refresh
        {
            lock(&self.counts).counts.dropped += 1;
        }
    }

    /// How it fares.
    pub(crate) fn counts(&self) -> DeliveryCounts {
        lock(&self.counts).counts
    }

    /// A failure that was not reported yet.
    pub(crate) fn take_trouble(&self) -> Option<String> {
        lock(&self.counts).trouble.take()
    }
}

fn lock(state: &Mutex<SenderState>) -> std::sync::MutexGuard<'_, SenderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The task's end.
pub(crate) struct DeliveryTask {
    client: PostClient,
    secret: Option<WebhookSecret>,
    messages: Receiver<Message>,
    state: Arc<Mutex<SenderState>>,
    began: Instant,
}

/// Both ends for one receiver.
pub(crate) fn pair(client: PostClient, secret: Option<WebhookSecret>) -> (Courier, DeliveryTask) {
    let (sender, messages) = channel(WAITING);
    let state = Arc::new(Mutex::new(SenderState::default()));
    let courier = Courier {
        messages: sender,
        counts: Arc::clone(&state),
    };
    let task = DeliveryTask {
        client,
        secret,
        messages,
        state,
        began: Instant::now(),
    };
    (courier, task)
}

impl DeliveryTask {
    /// Delivers until the loop has ended and everything is sent, or failed once more.
    pub(crate) async fn run(mut self) {
        let mut outbox = Outbox::default();
        let mut is_over = false;
        loop {
            let now = self.began.elapsed();
            if let Some(message) = outbox.ready(now) {
                let body = message.body.clone();
                let delivered = self.deliver(body).await;
                self.note(&mut outbox, delivered);
                if is_over && outbox.due().is_some_and(|due| due > self.began.elapsed()) {
                    return;
                }
                continue;
            }
            if is_over {
                return;
            }
            let pause = outbox
                .due()
                .map_or(Duration::from_secs(3600), |due| due - now);
            tokio::select! {
                message = self.messages.recv() => match message {
                    Some(message) => outbox.push(message),
                    None => is_over = true,
                },
                () = tokio::time::sleep(pause) => {}
            }
            lock(&self.state).counts.queued = outbox.waiting();
        }
    }

    async fn deliver(&self, body: Vec<u8>) -> Result<(), Undelivered> {
        let mut headers = Vec::new();
        if let Some(secret) = &self.secret {
            let time = Timestamp::now().as_second();
            let pairs = [
                ("x-fdguard-timestamp", time.to_string()),
                ("x-fdguard-signature", secret.sign(time, &body)),
            ];
            for (name, value) in pairs {
                let value = HeaderValue::from_str(&value);
                headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
            }
        }
        self.client.post(body, &headers).await
    }

    fn note(&self, outbox: &mut Outbox, delivered: Result<(), Undelivered>) {
        let before = outbox.dropped();
        let mut state = lock(&self.state);
        match delivered {
            Ok(()) => {
                outbox.sent();
                state.counts.sent += 1;
            }
            Err(Undelivered::Later(why)) => {
                outbox.failed(self.began.elapsed());
                state.counts.failed += 1;
                state.trouble = Some(why);
            }
            Err(Undelivered::Refused(status)) => {
                outbox.refused();
                state.counts.failed += 1;
                state.trouble = Some(format!("refused with status {status}"));
            }
        }
        state.counts.dropped += outbox.dropped() - before;
        state.counts.queued = outbox.waiting();
    }
}
