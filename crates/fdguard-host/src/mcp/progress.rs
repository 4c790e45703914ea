//! Output while a command runs, for clients that requested it: a few notifications per second with
//! the newest lines.

use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::session::Chunk;

/// Between two notices.
const PACE: Duration = Duration::from_millis(100);
/// Bytes of the newest output that a notice shows. The result has all that is kept.
const TAIL: usize = 4096;

/// Sends progress notices until the output ends. Never delays the program for longer than one
/// notice takes.
pub(super) async fn tell(
    peer: Peer<RoleServer>,
    token: ProgressToken,
    mut chunks: mpsc::Receiver<Chunk>,
) {
    let mut tail = Tail::default();
    while let Some(chunk) = chunks.recv().await {
        tail.add(&chunk.bytes);
        let due = Instant::now() + PACE;
        let mut is_open = true;
        while let Ok(next) = timeout_at(due, chunks.recv()).await {
            match next {
                Some(chunk) => tail.add(&chunk.bytes),
                None => {
                    is_open = false;
                    break;
                }
            }
        }
        let (progress, message) = tail.take();
        if !is_open || message.is_empty() {
            continue;
        }
        let notice = ProgressNotificationParam::new(token.clone(), progress).with_message(message);
        if peer.notify_progress(notice).await.is_err() {
            // The client is gone. Dropping the channel delays nothing.
            return;
        }
    }
}

/// The newest bytes since the last notice, and how many there were in all.
#[derive(Debug, Default)]
struct Tail {
    bytes: Vec<u8>,
    all: u32,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.all = self.all.saturating_add(count);
        self.bytes.extend_from_slice(bytes);
        let surplus = self.bytes.len().saturating_sub(TAIL);
        drop(self.bytes.drain(..surplus));
    }

    /// Its text. The start of an incomplete character waits for the next time.
    fn take(&mut self) -> (f64, String) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if let Err(error) = std::str::from_utf8(&bytes)
            && error.error_len().is_none()
        {
            self.bytes = bytes.split_off(error.valid_up_to());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        (f64::from(self.all), text)
    }
}

#[cfg(test)]
mod tests {
    use super::{TAIL, Tail};

    #[test]
    fn a_notice_shows_the_newest_output_and_no_half_character() {
        let mut tail = Tail::default();
        tail.add(&[b'a'; 10_000]);
        tail.add(b"end\xc3");
        let (count, text) = tail.take();
        assert_eq!((count, text.len()), (10_004.0, TAIL - 1));
        assert!(text.ends_with("aend"), "{text}");
        tail.add(b"\xa4");
        assert_eq!(tail.take(), (10_005.0, "ä".to_owned()));
        assert_eq!(tail.take().1, "");
    }
}
