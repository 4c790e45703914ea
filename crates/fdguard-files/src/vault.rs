//! A thread with a private descriptor table: no stale descriptor number of the process can reach
//! what it opens.
//!
//! After a program closes a descriptor and keeps using the number, the number refers to whatever
//! got it next. A database opened in a vault has no number in the process's table: a stale write, a
//! double close or a `close_range` by other code cannot hit it. Children started by other threads
//! do not inherit it. POSIX locks belong to the table, so they are not dropped when other code
//! opens and closes the same file.
//!
//! Everything the vault opens stays in its thread, as its state. Work is sent to the state; plain
//! data comes back.
//!
//! **No descriptor may cross the boundary**, neither in the work nor in its result. A `File` of the
//! process refers to another file inside the vault, and the compiler cannot detect that. The state
//! is created in the vault and cannot leave it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::sys;

/// Work sent to a vault.
type Work<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Errors of a vault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system cannot create a thread, or a private table for it.
    #[error(
        "cannot create a thread with a private descriptor table (requires Linux 5.9 and close_range): {0}"
    )]
    Start(String),
    /// A task panicked. The vault accepts nothing more and has released everything.
    #[error("a task in the descriptor vault panicked: {0}")]
    Panicked(String),
    /// An earlier task panicked.
    #[error("the descriptor vault has ended")]
    Gone,
}

/// The thread, and the channel to it. Dropping it closes everything it opened and waits for it.
#[derive(Debug)]
pub struct Vault<S> {
    /// `None` only while it is dropped.
    work: Option<Sender<Work<S>>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: 'static> Vault<S> {
    /// Starts a thread of this name and creates its state there. An error of the state itself is
    /// the inner result.
    pub fn start<E: Send + 'static>(
        name: &str,
        make: impl FnOnce() -> Result<S, E> + Send + 'static,
    ) -> Result<Result<Self, E>, Error> {
        let (work, inbox) = channel::<Work<S>>();
        let (tell, told) = channel::<Result<Result<(), E>, Error>>();
        let body = move || {
            let mut state = match start(make) {
                Ok(Ok(state)) => {
                    drop(tell.send(Ok(Ok(()))));
                    state
                }
                Ok(Err(error)) => return drop(tell.send(Ok(Err(error)))),
                Err(error) => return drop(tell.send(Err(error))),
            };
            drop(tell);
            for work in inbox {
                // A state that was left in the middle of a change is not used again.
                if catch_unwind(AssertUnwindSafe(|| work(&mut state))).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .map_err(|error| Error::Start(error.to_string()))?;
        let mut vault = Self {
            work: Some(work),
            thread: Some(thread),
        };
        match told.recv() {
            Ok(Ok(Ok(()))) => Ok(Ok(vault)),
            Ok(Ok(Err(error))) => Ok(Err(error)),
            Ok(Err(error)) => Err(error),
            Err(_hung_up) => Err(vault.end()),
        }
    }

    /// Runs this in the vault and waits for it. Concurrent callers wait their turn.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (tell, told) = channel::<std::thread::Result<T>>();
        let work: Work<S> =
            Box::new(
                move |state| match catch_unwind(AssertUnwindSafe(|| work(state))) {
                    Ok(result) => drop(tell.send(Ok(result))),
                    Err(panic) => {
                        drop(tell.send(Err(panic)));
                        // Ends the thread without a second message: the first was already printed.
                        std::panic::resume_unwind(Box::new("the work panicked"));
                    }
                },
            );
        let inbox = self.work.as_ref().ok_or(Error::Gone)?;
        inbox.send(work).map_err(|_hung_up| Error::Gone)?;
        match told.recv() {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(panic)) => Err(Error::Panicked(words(panic.as_ref()))),
            Err(_hung_up) => Err(Error::Gone),
        }
    }
}

impl<S> Vault<S> {
    /// Waits for the thread and returns how it ended.
    fn end(&mut self) -> Error {
        drop(self.work.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => Error::Panicked(words(panic.as_ref())),
            _ => Error::Gone,
        }
    }
}

impl<S> Drop for Vault<S> {
    fn drop(&mut self) {
        let _how = self.end();
    }
}

/// Leaves the table, then creates the state.
fn start<S, E>(make: impl FnOnce() -> Result<S, E>) -> Result<Result<S, E>, Error> {
    leave().map_err(|error| Error::Start(error.to_string()))?;
    Ok(make())
}

fn leave() -> Result<(), Errno> {
    // A handler may write to a number that it knows, often that of a pipe. In this thread the
    // number would refer to another file.
    sys::block_signals()?;
    sys::leave_table()?;
    // Copies of the process's three standard streams would keep a pipe or a rotated log open. The
    // numbers are filled anyway: a message for standard error must not get into a file.
    for _ in 0..3 {
        let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        keep(null);
    }
    Ok(())
}

/// Leaves a descriptor open until the thread ends: the kernel closes it with the table.
fn keep(fd: std::os::fd::OwnedFd) {
    use std::os::fd::IntoRawFd as _;
    let _number = fd.into_raw_fd();
}

/// The message of a panic.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
