//! One descriptor from open to close.

use std::sync::Arc;

use crate::event::{CloseCall, OpenCall, StackId, Tid};
use crate::{Class, FileId};

/// Which use of a number: increases with every open in a table, so a reused number is another
/// descriptor.
pub type Generation = u64;

/// The most users of a descriptor that are distinguished; with more, every thread counts as a user.
const MOST_USERS: usize = 6;

/// The thread that acted, with its stack and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The thread.
    pub thread: Tid,
    /// Its stack.
    pub stack: Option<StackId>,
    /// When, by the monotonic clock in nanoseconds.
    pub at: u64,
}

/// A descriptor while it is open, and what is kept about it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FdLifetime {
    /// Which use of the number.
    pub generation: Generation,
    /// The thread that opened it; absent if the open was not seen.
    pub opener: Option<Actor>,
    /// The call that opened it.
    pub call: OpenCall,
    /// Its class, as far as the call determined it.
    pub class: Option<Class>,
    /// Which file it is.
    pub file: Option<FileId>,
    /// Whether exec closes it.
    pub cloexec: bool,
    /// Whether the process got it from its parent, or from the program before an exec.
    pub inherited: bool,
    /// The threads that made calls on it.
    pub(super) users: Users,
}

/// Shared, because most descriptors have the one user that opened them and forks copy whole tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Users {
    threads: Option<Arc<Vec<Tid>>>,
    is_crowded: bool,
}

impl Users {
    pub(super) fn add(&mut self, thread: Tid) {
        if self.has(thread) {
            return;
        }
        let threads = Arc::make_mut(self.threads.get_or_insert_default());
        if threads.len() < MOST_USERS {
            threads.push(thread);
        } else {
            self.is_crowded = true;
        }
    }

    fn has(&self, thread: Tid) -> bool {
        self.is_crowded
            || self
                .threads
                .as_ref()
                .is_some_and(|all| all.contains(&thread))
    }
}

impl FdLifetime {
    /// Events are missing: any thread may have used it, and the number may have become another
    /// file.
    pub(super) fn doubt(&mut self) {
        self.users.is_crowded = true;
        self.file = None;
    }

    /// Whether this thread opened it.
    #[must_use]
    pub fn is_opened_by(&self, thread: Tid) -> bool {
        self.opener.is_some_and(|opener| opener.thread == thread)
    }

    /// Whether this thread made a call on it. Shutdown does not count: an unrelated thread may do
    /// that.
    #[must_use]
    pub fn is_used_by(&self, thread: Tid) -> bool {
        self.users.has(thread)
    }

    /// Whether this thread is unrelated to it: it neither opened nor used it, although the open was
    /// seen. Inherited descriptors are related to every thread.
    #[must_use]
    pub fn is_strange_to(&self, thread: Tid) -> bool {
        self.opener.is_some()
            && !self.inherited
            && !self.is_opened_by(thread)
            && !self.is_used_by(thread)
    }

    /// Where it was opened.
    #[must_use]
    pub fn stack(&self) -> Option<StackId> {
        self.opener.and_then(|opener| opener.stack)
    }
}

/// A descriptor that is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedFd {
    /// What it was.
    pub life: FdLifetime,
    /// The thread that closed it; absent if the close was not seen.
    pub closer: Option<Actor>,
    /// The call that closed it.
    pub call: CloseCall,
    /// Threads that were inside a call on it at that moment.
    pub torn: Vec<Tid>,
    /// The close that started it, if the closer's own descriptor of the number had been taken from
    /// it.
    pub root: Option<Actor>,
}

impl ClosedFd {
    /// The thread to name for the close.
    #[must_use]
    pub fn named_closer(&self) -> Option<Actor> {
        self.root.or(self.closer)
    }
}
