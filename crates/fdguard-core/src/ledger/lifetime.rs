//! One descriptor from open to close.

use std::sync::Arc;

use crate::event::{CloseCall, OpenCall, StackId, Tid};
use crate::{Class, FileId};

/// Which use of a number: rises with every open in a table, so a number that is reused is another
/// descriptor.
pub type Generation = u64;

/// The threads that used a descriptor are distinguished up to this many; with more, every thread
/// counts as a user.
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

/// A descriptor while it is open, and what is remembered of it afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FdLifetime {
    /// Which use of the number.
    pub generation: Generation,
    /// The thread that opened it; absent if the open was not seen.
    pub opener: Option<Actor>,
    /// By which call.
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
    /// Events are missing: anybody may have used it, and the number may have become another file.
    pub(super) fn doubt(&mut self) {
        self.users.is_crowded = true;
        self.file = None;
    }

    /// Whether this thread opened it.
    #[must_use]
    pub fn is_opened_by(&self, thread: Tid) -> bool {
        self.opener.is_some_and(|opener| opener.thread == thread)
    }

    /// Whether this thread made a call on it. Shutting down is none: a stranger may do that.
    #[must_use]
    pub fn is_used_by(&self, thread: Tid) -> bool {
        self.users.has(thread)
    }

    /// Whether this thread has nothing to do with it: it neither opened nor used it, although
    /// somebody was seen to open it. What came from a parent is everybody's.
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
    /// By which call.
    pub call: CloseCall,
    /// Threads that were inside a call on it in that moment.
    pub torn: Vec<Tid>,
    /// Whose close began it, if the closer acted on a number whose own descriptor had been taken
    /// from it.
    pub root: Option<Actor>,
}

impl ClosedFd {
    /// The thread to name for the close.
    #[must_use]
    pub fn named_closer(&self) -> Option<Actor> {
        self.root.or(self.closer)
    }
}
