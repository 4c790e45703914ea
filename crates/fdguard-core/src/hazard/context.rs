//! The context of a check: the event, and the state just before it.

use super::incident::Incident;
use super::memory::Memory;
use crate::event::{CloseCall, Errno, TraceEvent, What};
use crate::ledger::{Actor, ClosedFd, FdLifetime, FdSlot, Ledger};
use crate::{Class, Fd};

/// Numbers up to this are the standard streams: programs close, reopen and inherit them on purpose.
const LAST_STREAM: Fd = 2;

/// An event with the state just before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventContext<'a> {
    pub(super) event: &'a TraceEvent,
    pub(super) ledger: &'a Ledger,
    pub(super) memory: &'a Memory,
}

impl<'a> EventContext<'a> {
    pub(super) fn actor(&self) -> Actor {
        Actor {
            thread: self.event.thread,
            stack: self.event.stack,
            at: self.event.at,
        }
    }

    pub(super) fn slot(&self, fd: Fd) -> Option<&'a FdSlot> {
        self.ledger.slot(self.event.process, fd)
    }

    pub(super) fn current(&self, fd: Fd) -> Option<&'a FdLifetime> {
        self.slot(fd).and_then(FdSlot::current)
    }

    /// The last descriptor closed at a number where nothing is open now, if its closer is known.
    pub(super) fn last_closed(&self, fd: Fd) -> Option<&'a ClosedFd> {
        let is_free = self.current(fd).is_none();
        self.last_past(fd).filter(|_| is_free)
    }

    /// The same for a call that needs the descriptor. What is closed together with a range of
    /// numbers is gone for its users, too.
    pub(super) fn last_gone(&self, fd: Fd) -> Option<&'a ClosedFd> {
        let last = self.slot(fd)?.past().next()?;
        let is_swept = last.call == CloseCall::CloseRange && last.closer.is_some();
        let is_free = self.current(fd).is_none();
        let is_known = (is_deliberate(last) || is_swept) && !last.life.inherited;
        (is_known && is_free).then_some(last)
    }

    /// The same for a close that failed because nothing was open. A close is placed in the order of
    /// events before it is made: whatever another thread had at the number then was closed by that
    /// thread before this close was made.
    pub(super) fn closed_before(&self, fd: Fd) -> Option<&'a ClosedFd> {
        let thread = self.event.thread;
        let is_strangers = |life: &FdLifetime| life.is_strange_to(thread);
        let is_free = self.current(fd).is_none_or(is_strangers);
        self.last_past(fd).filter(|_| is_free)
    }

    fn last_past(&self, fd: Fd) -> Option<&'a ClosedFd> {
        let last = self.slot(fd)?.past().next()?;
        // A child that closes everything it inherited does not know what else in it uses the
        // number.
        (is_deliberate(last) && !last.life.inherited).then_some(last)
    }

    /// Whether the event was reported after the number was reused: it concerns the earlier
    /// descriptor.
    pub(super) fn is_late(&self, life: &FdLifetime) -> bool {
        life.opener.is_some_and(|opener| self.event.at < opener.at)
    }

    /// Whether the finished call was entered on an earlier descriptor of the number: the kernel
    /// kept using that one, and the current one was not touched. Where nothing was known to be
    /// open, the open was only reported late.
    pub(super) fn is_about_earlier(&self, fd: Fd) -> bool {
        let now = self.current(fd).map(|life| life.generation);
        let entered = self.memory.entered(self.event, fd);
        let entered = entered.and_then(|inside| inside.generation);
        entered.is_some_and(|generation| Some(generation) != now)
    }

    pub(super) fn incident(&self, fd: Fd, message: String) -> Incident {
        Incident {
            fd: Some(fd),
            ..Incident::new(self.event.process, self.event.at, message)
        }
    }

    /// The number of a close that actually releases it.
    pub(super) fn closes(&self) -> Option<Fd> {
        match self.event.what {
            What::Close { fd, errno, .. } if errno != Some(Errno::Ebadf) => Some(fd),
            _ => None,
        }
    }
}

pub(super) fn is_stream(fd: Fd) -> bool {
    fd <= LAST_STREAM
}

/// Whether a known thread closed exactly this number: `close_range` targets none in particular.
pub(super) fn is_deliberate(past: &ClosedFd) -> bool {
    past.closer.is_some() && past.call == CloseCall::Close
}

pub(super) fn is_socket(class: &Class) -> bool {
    let other = [
        Class::Udp,
        Class::Unix,
        Class::Netlink,
        Class::Packet,
        Class::Raw,
        Class::Vsock,
    ];
    class.is_tcp() || other.contains(class)
}

/// Whether both are known and of different kinds.
pub(super) fn differ(a: Option<&Class>, b: Option<&Class>) -> bool {
    a.zip(b).is_some_and(|(a, b)| a.family() != b.family())
}

/// A class as worded in a sentence.
pub(super) fn called(class: Option<&Class>) -> String {
    match class {
        Some(class) if is_socket(class) => {
            let name = class.to_string();
            let family = name.split(':').next().unwrap_or_default();
            format!("{family} socket")
        }
        Some(Class::Regular) => "regular file".to_owned(),
        Some(class) => class.to_string(),
        None => "descriptor".to_owned(),
    }
}
