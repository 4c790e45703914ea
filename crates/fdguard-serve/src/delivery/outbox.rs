//! The queue of one receiver: bounded, in order, with a growing pause after failures. Pure.

use std::collections::VecDeque;
use std::time::Duration;

/// Messages that may wait.
const MOST: usize = 256;
/// The first pause after a failure.
const FIRST: Duration = Duration::from_secs(1);
/// The longest.
const LONGEST: Duration = Duration::from_secs(300);
/// Attempts after which a message is given up: a day of pauses.
const ATTEMPTS: u32 = 300;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) body: Vec<u8>,
    /// Whether a newer one of this kind replaces it: a repetition of what is open.
    pub(crate) is_refresh: bool,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<Message>,
    /// Failures in a row.
    failures: u32,
    due: Duration,
    dropped: u64,
}

impl Outbox {
    /// Adds a message; the oldest is dropped if the queue is full.
    pub(crate) fn push(&mut self, message: Message) {
        if message.is_refresh {
            self.queue.retain(|one| !one.is_refresh);
        }
        if self.queue.len() >= MOST {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(message);
    }

    /// The message to send now.
    pub(crate) fn ready(&self, now: Duration) -> Option<&Message> {
        self.queue.front().filter(|_| now >= self.due)
    }

    /// When to try again; `None` if nothing waits.
    pub(crate) fn due(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then_some(self.due)
    }

    /// The first message was delivered.
    pub(crate) fn sent(&mut self) {
        self.queue.pop_front();
        self.failures = 0;
        self.due = Duration::ZERO;
    }

    /// The receiver refused the first message for what it is: another attempt would not help.
    pub(crate) fn refused(&mut self) {
        self.sent();
        self.dropped += 1;
    }

    /// The first message could not be delivered.
    pub(crate) fn failed(&mut self, now: Duration) {
        self.failures += 1;
        let pause = FIRST * 2_u32.saturating_pow(self.failures.min(16) - 1);
        self.due = now + pause.min(LONGEST);
        if self.failures >= ATTEMPTS {
            self.queue.pop_front();
            self.failures = 0;
            self.dropped += 1;
        }
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn waiting(&self) -> u64 {
        self.queue.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ATTEMPTS, MOST, Message, Outbox};

    fn message(text: &str) -> Message {
        Message {
            body: text.as_bytes().to_vec(),
            is_refresh: text.starts_with("refresh"),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn messages_go_in_order_and_pauses_grow() {
        let mut outbox = Outbox::default();
        outbox.push(message("a"));
        outbox.push(message("b"));
        let mut now = seconds(0);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            assert_eq!(outbox.ready(now), Some(&message("a")));
            outbox.failed(now);
            assert_eq!(outbox.ready(now), None);
            let due = outbox.due().unwrap();
            pauses.push((due - now).as_secs());
            now = due;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        outbox.sent();
        assert_eq!(
            outbox.ready(seconds(0)),
            Some(&message("b")),
            "no pause after success"
        );
        outbox.refused();
        assert_eq!((outbox.due(), outbox.dropped()), (None, 1));
    }

    #[test]
    fn a_receiver_that_is_gone_costs_messages_and_not_memory() {
        let mut outbox = Outbox::default();
        for n in 0..1000 {
            outbox.push(message(&n.to_string()));
        }
        assert_eq!(
            (outbox.waiting(), outbox.dropped()),
            (MOST as u64, 1000 - MOST as u64)
        );
        assert_eq!(
            outbox.ready(seconds(0)),
            Some(&message("744")),
            "the newest stay"
        );
        for _ in 0..ATTEMPTS {
            outbox.failed(seconds(0));
        }
        assert_eq!(outbox.waiting(), MOST as u64 - 1);
    }

    #[test]
    fn a_repetition_replaces_the_one_before() {
        let mut outbox = Outbox::default();
        for text in ["refresh 1", "a", "refresh 2"] {
            outbox.push(message(text));
        }
        assert_eq!(outbox.waiting(), 2);
        assert_eq!(outbox.dropped(), 0);
    }
}
