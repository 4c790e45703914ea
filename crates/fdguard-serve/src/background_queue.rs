//! Work that takes seconds, one at a time, each in a thread of its own, so that the loop goes on.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Work that waits for the one in progress.
pub(crate) const WAITING: usize = 8;
/// The thread only waits for a child and reads what it wrote.
const STACK: usize = 256 << 10;

/// Something that a thread does.
pub(crate) trait BackgroundWork: Clone + Debug + Send + 'static {
    /// What comes of it.
    type Outcome: Debug + Send + 'static;

    /// Does it.
    fn run(self) -> Self::Outcome;

    /// It will not be done.
    fn failed(self, why: String) -> Self::Outcome;
}

/// The work in progress, and what waits for it.
#[derive(Debug)]
pub(crate) struct BackgroundQueue<W: BackgroundWork> {
    thread: &'static str,
    waiting: VecDeque<W>,
    /// Not even begun.
    missing: Vec<W::Outcome>,
    is_busy: bool,
    done: (Sender<W::Outcome>, Receiver<W::Outcome>),
}

impl<W: BackgroundWork> BackgroundQueue<W> {
    /// An empty one, whose threads have this name.
    pub(crate) fn new(thread: &'static str) -> Self {
        Self {
            thread,
            waiting: VecDeque::new(),
            missing: Vec::new(),
            is_busy: false,
            done: channel(),
        }
    }

    /// Adds work. Returns whether there was room for it.
    pub(crate) fn push(&mut self, work: W) -> bool {
        if self.waiting.len() >= WAITING {
            let why = format!("{WAITING} others are waiting");
            self.missing.push(work.failed(why));
            return false;
        }
        self.waiting.push_back(work);
        self.start_next();
        true
    }

    fn start_next(&mut self) {
        if self.is_busy {
            return;
        }
        let Some(work) = self.waiting.pop_front() else {
            return;
        };
        let (begun, done) = (work.clone(), self.done.0.clone());
        // The loop may have ended.
        let run = move || drop(done.send(work.run()));
        let thread = std::thread::Builder::new().name(self.thread.to_owned());
        match thread.stack_size(STACK).spawn(run) {
            Ok(_) => self.is_busy = true,
            Err(error) => self.missing.push(begun.failed(error.to_string())),
        }
    }

    /// Work that is done, or will not be.
    pub(crate) fn take(&mut self) -> Option<W::Outcome> {
        if let Some(missing) = self.missing.pop() {
            return Some(missing);
        }
        let done = self.done.1.try_recv().ok()?;
        self.is_busy = false;
        self.start_next();
        Some(done)
    }

    #[cfg(test)]
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }
}
