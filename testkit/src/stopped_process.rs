//! Stops a process so that no signal affects it, like one that the kernel cannot end.

use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

use crate::sys;

/// Keeps a process stopped until it is dropped.
#[derive(Debug)]
pub struct StoppedProcess {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StoppedProcess {
    /// Stops the process, and waits until it is stopped.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        let (end, ended) = mpsc::channel();
        let (stand, stands) = mpsc::channel();
        // Only the thread that stopped it can release it.
        let thread = std::thread::spawn(move || {
            sys::hold(pid).expect("a process that may be held");
            stand.send(()).expect("somebody waits");
            let _dropped = ended.recv();
            sys::release(pid).expect("it is held");
        });
        stands.recv().expect("it stands");
        Self {
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _its_panic_was_shown = thread.join();
        }
    }
}
