//! Which descriptor a thread meant when it acts on a number that was reused.
//!
//! Threads pass descriptors to each other invisibly. That a thread used an earlier descriptor of a
//! number therefore proves nothing by itself; the functions here require more.

use super::context::{EventContext, differ, is_deliberate, is_socket, is_stream};
use super::memory::Memory;
use super::{Fault, tls};
use crate::Fd;
use crate::event::{CloseCall, Errno, FdCall, OpenCall, Tid, What};
use crate::ledger::{ClosedFd, FdLifetime, FdSlot};

/// A line has a habit after it has worked on this many descriptors of one origin.
const HABIT: u32 = 2;

/// A line that only ever reached such descriptors did so by mistake after this many.
const REPEATED: u32 = 2;

/// A use that was meant for an earlier descriptor of the number.
#[derive(Debug)]
pub(super) struct StaleUse<'a> {
    pub(super) fd: Fd,
    pub(super) call: FdCall,
    /// What was meant.
    pub(super) meant: &'a ClosedFd,
    /// What was hit.
    pub(super) hit: &'a FdLifetime,
    /// The kind of record that was written, if it looks like one.
    pub(super) record: Option<String>,
    pub(super) has_failed: bool,
}

/// The latest descriptor before the present one that this thread opened, used or waited for. A
/// descriptor that `dup2` replaced another with is meant for every user of the number.
pub(super) fn claim(slot: &FdSlot, thread: Tid) -> Option<&ClosedFd> {
    if slot
        .current()
        .is_some_and(|life| life.call == OpenCall::Dup2)
    {
        return None;
    }
    let placed = |past: &&ClosedFd| past.call != CloseCall::Dup2;
    let known = slot.past().take_while(placed);
    let mut mine = known.filter(|past| has_claim(past, thread));
    mine.next()
}

/// The descriptor that a thread meant when it acts on a number where nothing is open: the latest if
/// the thread had used that, else the latest that it had used; absent if it had used none.
pub(super) fn meant<'a>(slot: &'a FdSlot, last: &'a ClosedFd, thread: Tid) -> Option<&'a ClosedFd> {
    if has_claim(last, thread) {
        return Some(last);
    }
    let own = |past: &&ClosedFd| is_deliberate(past) && !past.life.inherited;
    claim(slot, thread).filter(own)
}

/// The descriptor taken from this thread, if it acts as if it still had what it opened at this
/// number while an unrelated thread closed that. Not enough to accuse any thread, but this one does
/// not own what is there now.
pub(super) fn orphaned(slot: &FdSlot, thread: Tid) -> Option<&ClosedFd> {
    let is_foreign = slot.current().is_none_or(|life| life.is_strange_to(thread));
    let lost = claim(slot, thread).filter(|_| is_foreign);
    let lost = lost.filter(|past| is_deliberate(past) && past.life.is_opened_by(thread));
    lost.filter(|past| is_taken(past))
}

/// Whether an unrelated thread closed it.
pub(super) fn is_taken(past: &ClosedFd) -> bool {
    past.closer
        .is_some_and(|closer| past.life.is_strange_to(closer.thread))
}

/// Whether this thread was using it.
pub(super) fn has_claim(past: &ClosedFd, thread: Tid) -> bool {
    past.life.is_opened_by(thread) || past.life.is_used_by(thread) || past.torn.contains(&thread)
}

/// Which party is at fault when `user` still acts on a closed descriptor: the closer, if `user` was
/// still using it; otherwise the user, which continues after a proper close.
pub(super) fn fault(past: &ClosedFd, user: Tid) -> Fault {
    let Some(closer) = past.closer.filter(|closer| closer.thread != user) else {
        return Fault::User;
    };
    let is_taken = has_claim(past, user) && past.life.is_strange_to(closer.thread);
    let is_owner = past.life.is_opened_by(user) && past.life.is_used_by(user);
    if is_taken || is_owner || past.torn.contains(&user) {
        Fault::Closer
    } else {
        Fault::User
    }
}

/// Whether the event uses a descriptor in place of an earlier one. One of these must prove it:
/// - a TLS record goes into something that is not a socket, and the thread had a socket at this
///   number;
/// - a call for sockets fails with `ENOTSOCK`, and the thread had a socket at this number;
/// - the thread was inside a call on the earlier one when another thread closed it, this one is of
///   another kind, and the thread has not touched it before;
/// - the thread opened the earlier one, another thread closed it, this one is of another kind, and
///   the line has so far worked on what the earlier one's opener opens and never on what this one's
///   does;
/// - the thread opened and used the earlier one, an unrelated thread closed it and opened this one,
///   which is of another kind, and the line has reached what is opened there several times, always
///   in place of a descriptor that was taken from its thread.
pub(super) fn stale_use<'a>(context: &EventContext<'a>) -> Option<StaleUse<'a>> {
    let What::Use {
        fd,
        call,
        bytes,
        errno,
    } = &context.event.what
    else {
        return None;
    };
    let (slot, thread) = (context.slot(*fd)?, context.event.thread);
    let hit = slot.current()?;
    let is_foreign = hit.opener.is_some() && !hit.inherited && !hit.is_opened_by(thread);
    if is_stream(*fd) || !is_foreign || context.is_late(hit) || context.is_about_earlier(*fd) {
        return None;
    }
    let meant = claim(slot, thread).filter(|past| is_deliberate(past))?;
    let class = |life: &'a FdLifetime| life.class.as_ref();
    let was_socket = class(&meant.life).is_some_and(is_socket);
    let is_other = class(hit).is_some_and(|class| !is_socket(class));
    let record = (call.writes() && errno.is_none())
        .then(|| tls::record(bytes))
        .flatten();
    let misses_socket = call.needs_socket() && *errno == Some(Errno::Enotsock);
    let by_shape = was_socket && is_other && (record.is_some() || misses_socket);
    let is_new =
        hit.is_strange_to(thread) && *errno != Some(Errno::Ebadf) && *call != FdCall::Other;
    let by_past = is_new
        && differ(class(&meant.life), class(hit))
        && (meant.torn.contains(&thread)
            || breaks_habit(context, meant, hit)
            || is_repeated(context, meant, hit));
    (by_shape || by_past).then_some(StaleUse {
        fd: *fd,
        call: *call,
        meant,
        hit,
        record,
        has_failed: errno.is_some(),
    })
}

fn breaks_habit(context: &EventContext<'_>, meant: &ClosedFd, hit: &FdLifetime) -> bool {
    let (line, thread) = (context.event.stack, context.event.thread);
    let is_closed_by_other = meant.closer.is_some_and(|closer| closer.thread != thread);
    meant.life.is_opened_by(thread)
        && is_closed_by_other
        && context.memory.uses(line, meant.life.stack()) >= HABIT
        && context.memory.uses(line, hit.stack()) == 0
}

fn is_repeated(context: &EventContext<'_>, meant: &ClosedFd, hit: &FdLifetime) -> bool {
    let (line, thread) = (context.event.stack, context.event.thread);
    let habits = context.memory;
    // A collector closes what others forgot and opens nothing.
    let is_replaced = meant
        .closer
        .is_some_and(|closer| hit.is_opened_by(closer.thread));
    is_replaced
        && meant.life.is_opened_by(thread)
        && meant.life.is_used_by(thread)
        && is_taken(meant)
        && habits.orphan_uses(line, hit.stack()) >= REPEATED
        && habits.uses(line, hit.stack()) == 0
}

/// What a use reaches in place of a descriptor that an unrelated thread took from its thread, if
/// that is of another kind.
pub(super) fn orphan_hit<'a>(context: &EventContext<'a>) -> Option<&'a FdLifetime> {
    let What::Use { fd, call, .. } = context.event.what else {
        return None;
    };
    let (slot, thread) = (context.slot(fd)?, context.event.thread);
    if is_stream(fd) || call == FdCall::Other || context.is_about_earlier(fd) {
        return None;
    }
    let lost = orphaned(slot, thread)?;
    let hit = slot.current().filter(|life| !context.is_late(life))?;
    differ(lost.life.class.as_ref(), hit.class.as_ref()).then_some(hit)
}

/// A close that hit the wrong descriptor: what its closer meant, and what it hit.
#[derive(Clone, Copy, Debug)]
pub(super) struct WrongClose<'a> {
    /// Closed before.
    pub(super) meant: &'a ClosedFd,
    /// Closed instead.
    pub(super) hit: &'a ClosedFd,
}

/// Whether `hit`, which its owner was still using, was closed by a thread that meant an earlier
/// descriptor of the number. If that one had itself been lost to a wrong close, returns the first
/// of them.
pub(super) fn wrong_close<'a>(
    memory: &Memory,
    slot: &'a FdSlot,
    hit: &'a ClosedFd,
) -> Option<WrongClose<'a>> {
    let mut found = None;
    let mut at = hit;
    while let Some(meant) = meant_by_closer(memory, slot, at) {
        found = Some(WrongClose { meant, hit: at });
        at = meant;
    }
    found
}

/// The descriptor that the closer of `hit` meant to close, if it was a different one. The closer is
/// unrelated to `hit`, and one of these holds for an earlier descriptor of the number:
/// - the closer opened it, and an unrelated third thread closed it;
/// - the line is known to close what that descriptor's opener opens, and never what the opener of
///   `hit` opens.
fn meant_by_closer<'a>(memory: &Memory, slot: &'a FdSlot, hit: &ClosedFd) -> Option<&'a ClosedFd> {
    let closer = hit.closer.filter(|_| is_deliberate(hit))?;
    if !hit.life.is_strange_to(closer.thread) || hit.life.call == OpenCall::Dup2 {
        return None;
    }
    let is_habit = |past: &ClosedFd| {
        memory.closes(closer.stack, past.life.stack()) > 0
            && memory.closes(closer.stack, hit.life.stack()) == 0
    };
    let is_meant = |past: &&ClosedFd| {
        let Some(first) = past.closer.filter(|_| is_deliberate(past)) else {
            return false;
        };
        let is_own = past.life.is_opened_by(closer.thread) && past.life.is_strange_to(first.thread);
        is_own || is_habit(past)
    };
    let older = slot
        .past()
        .filter(|past| past.life.generation < hit.life.generation);
    let mut older = older.take_while(|past| past.call != CloseCall::Dup2);
    older.find(is_meant)
}
