//! The events of a tracer: one [`TraceEvent`] for each thing that happened to a descriptor.
//!
//! A tracer declares what it [collects](CollectedEvents). Opens, closes, forks, execs and exits are
//! always reported; the rest only on request. A hazard that needs an event which was not collected
//! is not raised, and a gap reports that. Events may be late, doubled or missing.
//!
//! An event represents a call that took some time. Opens, uses and locks are reported after their
//! call; a close is reported before its call and [`What::CloseReturned`] after it;
//! [`What::Locking`] precedes a change of locks. Calls of two threads whose times overlap may have
//! happened in either order, and no hazard may depend on which.

mod call_name;
mod collected_events;

use std::fmt;

pub use collected_events::CollectedEvents;
pub use fdguard_wire::{CloseCall, FdCall, OpenCall};
use serde::{Deserialize, Serialize};

use crate::{Class, Fd, FileId, TraceKey};

/// A thread, by the number that the kernel gives it.
pub type Tid = u32;

/// A stack that the tracer has interned: equal stacks of one trace have one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StackId(pub u32);

/// One thing that happened in a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// The process.
    pub process: TraceKey,
    /// The thread.
    pub thread: Tid,
    /// Nanoseconds of the monotonic clock. A close carries the time before its call and an open the
    /// time after it, so that a number that is reused at once is reported in the right order.
    pub at: u64,
    /// Where in the code; absent where no stack was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum What {
    /// A descriptor was opened.
    #[serde(rename = "birth")]
    Open {
        /// The number.
        fd: Fd,
        /// The call that opened it.
        #[serde(rename = "how", with = "call_name")]
        call: OpenCall,
        /// Its class, as far as the call determines it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
        /// Which file, where the tracer checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FileId>,
        /// Whether exec closes it.
        #[serde(default)]
        cloexec: bool,
    },
    /// A descriptor was closed, or a close failed.
    #[serde(rename = "death")]
    Close {
        /// The number.
        fd: Fd,
        /// The call that closed it.
        #[serde(rename = "how", with = "call_name")]
        call: CloseCall,
        /// Why it failed. Linux releases the number whatever `close` returns, except for `EBADF`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<Errno>,
    },
    /// The thread's close of this number has returned: it happened between its [`What::Close`] and
    /// this. Any other event of the thread means the same.
    #[serde(rename = "closed")]
    CloseReturned {
        /// The number.
        fd: Fd,
    },
    /// `close_range`: many numbers at once.
    CloseRange {
        /// The first number.
        first: Fd,
        /// The last number.
        last: Fd,
        /// `CLOSE_RANGE_CLOEXEC`: they are closed by the next exec, not now.
        #[serde(default)]
        at_exec: bool,
    },
    /// `FD_CLOEXEC` was set or cleared.
    Cloexec {
        /// The number.
        fd: Fd,
        /// Whether exec closes it now.
        on: bool,
    },
    /// A call that may block begins ([`CollectedEvents::calls`]). `poll` sends one for each number.
    Enter {
        /// The number.
        fd: Fd,
        /// The call.
        #[serde(with = "call_name")]
        call: FdCall,
    },
    /// The thread has returned from its call. Any other event of the thread means the same.
    Leave,
    /// A call on a number is over ([`CollectedEvents::uses`]). Reported before its [`What::Leave`]:
    /// the call belongs to the descriptor that it was entered on, whatever has the number by now.
    Use {
        /// The number.
        fd: Fd,
        /// The call.
        #[serde(with = "call_name")]
        call: FdCall,
        /// The first bytes that were written, 16 at most.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        bytes: Vec<u8>,
        /// Why it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        errno: Option<Errno>,
    },
    /// A socket was shut down: no number is released, so a thread other than the owner may do that.
    Shutdown {
        /// The number.
        fd: Fd,
    },
    /// A POSIX lock was taken or released ([`CollectedEvents::locks`]). `flock` and
    /// open-file-description locks are not lost when another descriptor is closed and are not
    /// reported.
    Lock {
        /// The number it went through.
        fd: Fd,
        /// The file; absent: the file of its open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<FileId>,
        /// First byte and the one after the last; absent: all of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        range: Option<(u64, u64)>,
        /// Taken or released.
        taken: bool,
    },
    /// A call begins that takes or releases a POSIX lock ([`CollectedEvents::locks`]). Its effect
    /// happens between this and the thread's next event, which is its [`What::Lock`] if it
    /// succeeds.
    Locking {
        /// The number it goes through.
        fd: Fd,
    },
    /// The tracer determined which file a number is.
    File {
        /// The number.
        fd: Fd,
        /// The file.
        file: FileId,
    },
    /// The tracer learned which code requested this descriptor: the stack of this event replaces
    /// the stack of its open.
    #[serde(rename = "retold")]
    Reassigned {
        /// The number.
        fd: Fd,
    },
    /// A process was created.
    Fork {
        /// The new one.
        child: TraceKey,
        /// Whether both share one table (`CLONE_FILES`).
        #[serde(default)]
        shares_table: bool,
    },
    /// The process called exec.
    Exec {
        /// The numbers that are still open; absent: those without `FD_CLOEXEC`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<Vec<Fd>>,
    },
    /// The process has exited.
    Exit,
    /// A call that should have returned a number failed.
    Refused {
        /// The call.
        #[serde(with = "call_name")]
        call: OpenCall,
        /// Why.
        errno: Errno,
    },
    /// `select` was called ([`CollectedEvents::selects`]).
    Select {
        /// Its first argument: the highest number plus one.
        nfds: u32,
    },
    /// The process began as a copy of another one: earlier events of its numbers are not reported.
    Forked,
    /// The process has, or had, more than this one thread.
    Threaded,
    /// An event of this process is missing here. It may be reported later
    /// ([`crate::hazard::HazardDetector::observe_late`]).
    Missing,
    /// Events of this process that are lost for good.
    Lost {
        /// How many.
        count: u64,
    },
}

/// Why a call failed, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Errno {
    /// Interrupted by a signal.
    Eintr,
    /// No such descriptor, or not open for this.
    Ebadf,
    /// The host's table is full.
    Enfile,
    /// The process's table is full.
    Emfile,
    /// Not a socket.
    Enotsock,
    /// Any other, by its number.
    Other(i32),
}

impl Errno {
    /// From Linux's errno.
    #[must_use]
    pub fn from_linux(number: i32) -> Self {
        match number {
            4 => Self::Eintr,
            9 => Self::Ebadf,
            23 => Self::Enfile,
            24 => Self::Emfile,
            88 => Self::Enotsock,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eintr => f.write_str("EINTR"),
            Self::Ebadf => f.write_str("EBADF"),
            Self::Enfile => f.write_str("ENFILE"),
            Self::Emfile => f.write_str("EMFILE"),
            Self::Enotsock => f.write_str("ENOTSOCK"),
            Self::Other(number) => write!(f, "errno {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, OpenCall, StackId, TraceEvent, What};
    use crate::{Class, TraceKey};

    #[test]
    fn an_event_is_short_in_json_and_comes_back() {
        let event = TraceEvent {
            process: TraceKey { pid: 7, began: 70 },
            thread: 8,
            at: 9,
            stack: Some(StackId(3)),
            what: What::Open {
                fd: 5,
                call: OpenCall::Open,
                class: Some(Class::Regular),
                file: None,
                cloexec: true,
            },
        };
        let json = serde_json::to_string(&event).unwrap();
        let expected = r#"{"process":{"pid":7,"began":70},"thread":8,"at":9,"stack":3,"what":"birth","fd":5,"how":"open","class":"regular","cloexec":true}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<TraceEvent>(&json).unwrap(), event);
    }

    #[test]
    fn errors_have_their_names_and_the_rest_a_number() {
        let names = [4, 9, 23, 24, 88, 5].map(|number| Errno::from_linux(number).to_string());
        let expected = ["EINTR", "EBADF", "ENFILE", "EMFILE", "ENOTSOCK", "errno 5"];
        assert_eq!(names, expected);
        let json = serde_json::to_string(&[Errno::Ebadf, Errno::Other(5)]).unwrap();
        assert_eq!(json, r#"["EBADF",{"OTHER":5}]"#);
    }
}
