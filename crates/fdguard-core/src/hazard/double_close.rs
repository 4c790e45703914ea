//! A number that is closed twice for one descriptor.
//!
//! Evidence: either the second close fails with `EBADF`, nothing was opened at the number since a
//! known close, and it is not part of a series of numbers. Or the second close succeeds because the
//! number was reused: then its victim must have noticed (`EBADF` on what it opened or used and
//! never closed, a proven stale use, or a call that it is inside of), and the closer must be known
//! to have meant an earlier descriptor of the number ([`stale::wrong_close`]).
//!
//! A second close that fails does no harm by itself. Its severity depends on what it could have
//! hit: nothing in a process with one thread.

use super::context::{EventContext, called, is_deliberate, is_stream};
use super::incident::Incident;
use super::second_close::SecondClose;
use super::stale::{self, WrongClose};
use super::{Fault, Rule, RuleKind};
use crate::Fd;
use crate::event::{CloseCall, Errno, FdCall, What};
use crate::ledger::{Actor, ClosedFd};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "double-close",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "a descriptor is closed twice; the second close may hit another descriptor",
    cwe: Some(1341),
    requirement: "R40",
    fix: Some("let one owner close it and forget the number in the same step"),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    let found = match context.event.what {
        What::Close {
            fd,
            call: CloseCall::Close,
            errno: Some(Errno::Ebadf),
        } => failed(context, fd),
        What::Close {
            fd,
            call: CloseCall::Close,
            ..
        } => struck(context, fd),
        What::Use { .. } => noticed(context),
        _ => None,
    };
    found.map(with_fault_first).into_iter().collect()
}

/// Of two closes, the one at fault is the closer and the other one the user.
fn with_fault_first(incident: Incident) -> Incident {
    match incident.fault {
        Some(Fault::User) => Incident {
            closer: incident.user,
            user: incident.closer,
            fault: Some(Fault::Closer),
            ..incident
        },
        _ => incident,
    }
}

/// The second close failed.
fn failed(context: &EventContext<'_>, fd: Fd) -> Option<Incident> {
    let (process, thread) = (context.event.process, context.event.thread);
    let is_retry = context.memory.interrupted(process, thread, fd).is_some();
    if is_stream(fd) || is_retry {
        return None;
    }
    let last = context.closed_before(fd)?;
    if let Some(wrong) = taken_from(context, fd, last) {
        return Some(Incident {
            may_be_sweep: true,
            ..wrongly(context, fd, wrong)
        });
    }
    let own = stale::meant(context.slot(fd)?, last, thread);
    let first = own.or_else(|| likeliest(context, fd)).unwrap_or(last);
    let closer = first.named_closer()?;
    let is_latest = first.life.generation == last.life.generation;
    let line = context.event.stack.filter(|_| is_latest);
    // A thread that used it between its two closes believed that it was still open: the first one
    // was wrong. Of two threads, their descriptors show who is at fault.
    let generation = first.life.generation;
    let has_missed = context.memory.has_missed((process, thread), fd, generation);
    let is_owner = closer.thread == thread && has_missed;
    let message = format!(
        "thread {thread} closed fd {fd} again (EBADF): thread {} had already closed that {}",
        closer.thread,
        called(first.life.class.as_ref())
    );
    Some(Incident {
        class: first.life.class.clone(),
        opener: first.life.opener,
        closer: Some(closer),
        user: Some(context.actor()),
        fault: Some(if is_owner {
            Fault::Closer
        } else {
            stale::fault(first, thread)
        }),
        severity: Some(danger(context, closer, !is_latest)),
        may_be_sweep: true,
        second_close: SecondClose::suspect(context, fd, first),
        teaches: line.map(|line| (line, Box::new(first.life.clone()))),
        ..context.incident(fd, message)
    })
}

/// The severity of a failed second close: whether the number could have belonged to other code by
/// then.
fn danger(context: &EventContext<'_>, first: Actor, is_reused: bool) -> Severity {
    let (process, thread) = (context.event.process, context.event.thread);
    let is_threaded = context.memory.is_threaded(context.event);
    let has_opened = context.ledger.has_opened_since(process, first.at);
    match (is_threaded, is_reused) {
        (false, false) => Severity::Info,
        (false, true) => Severity::Warning,
        // Between two closes by one thread another thread may open, though none did this time.
        (true, false) if first.thread == thread && !has_opened => Severity::Warning,
        (true, _) => Severity::Critical,
    }
}

/// The second close succeeds while the victim is inside a call: it will notice.
pub(super) fn struck(context: &EventContext<'_>, fd: Fd) -> Option<Incident> {
    let slot = context.slot(fd)?;
    let life = slot.current().filter(|life| !context.is_late(life))?;
    let mut others = context
        .memory
        .others_inside(context.event, context.ledger, fd);
    let owner = others.find(|inside| stale::orphaned(slot, inside.actor.thread).is_none());
    if is_stream(fd) || owner.is_none() {
        return None;
    }
    let hit = ClosedFd {
        life: life.clone(),
        closer: Some(context.actor()),
        call: CloseCall::Close,
        torn: Vec::new(),
        root: None,
    };
    let wrong = stale::wrong_close(context.memory, slot, &hit)?;
    Some(wrongly(context, fd, wrong))
}

/// Of the descriptors that had this number, one that went from thread to thread (only such a number
/// can have several users); of these the one whose kind this line closes most often; of equals the
/// latest.
fn likeliest<'a>(context: &EventContext<'a>, fd: Fd) -> Option<&'a ClosedFd> {
    let line = context.event.stack;
    let past = context.slot(fd)?.past();
    let own = past.filter(|past| is_deliberate(past) && !past.life.inherited);
    // The last of equals wins, so the latest must come last.
    own.rev().max_by_key(|past| {
        let closer = past.closer.map(|closer| closer.thread);
        let is_shared = past.life.opener.map(|opener| opener.thread) != closer;
        (is_shared, context.memory.closes(line, past.life.stack()))
    })
}

/// A thread notices that another thread, which meant something else, closed its descriptor.
pub(super) fn noticed(context: &EventContext<'_>) -> Option<Incident> {
    let What::Use {
        fd, call, errno, ..
    } = context.event.what
    else {
        return None;
    };
    if is_stream(fd) || call == FdCall::Other {
        return None;
    }
    let lost = match errno {
        Some(Errno::Ebadf) => context.last_closed(fd)?,
        _ => stale::stale_use(context)?.meant,
    };
    let wrong = taken_from(context, fd, lost)?;
    Some(wrongly(context, fd, wrong))
}

/// The wrong close that took `lost` from the acting thread.
fn taken_from<'a>(
    context: &EventContext<'a>,
    fd: Fd,
    lost: &'a ClosedFd,
) -> Option<WrongClose<'a>> {
    let thread = context.event.thread;
    let is_other = lost.closer.is_some_and(|closer| closer.thread != thread);
    if !is_other || !stale::has_claim(lost, thread) {
        return None;
    }
    stale::wrong_close(context.memory, context.slot(fd)?, lost)
}

fn wrongly(context: &EventContext<'_>, fd: Fd, wrong: WrongClose<'_>) -> Incident {
    let WrongClose { meant, hit } = wrong;
    // A thread that closes both what it opened and what was taken from it is a victim itself.
    let is_victim = hit
        .closer
        .is_some_and(|closer| meant.life.is_opened_by(closer.thread));
    let fault = if is_victim && stale::is_taken(meant) {
        Fault::Closer
    } else {
        Fault::User
    };
    let thread = |actor: Option<Actor>| actor.map_or(0, |actor| actor.thread);
    let message = format!(
        "thread {} closed fd {fd} for a {} that thread {} had already closed, and hit the {} that \
         thread {} had opened at that number",
        thread(hit.closer),
        called(meant.life.class.as_ref()),
        thread(meant.named_closer()),
        called(hit.life.class.as_ref()),
        thread(hit.life.opener),
    );
    Incident {
        at: hit.closer.map_or(context.event.at, |closer| closer.at),
        class: meant.life.class.clone(),
        opener: meant.life.opener,
        closer: meant.named_closer(),
        user: hit.closer,
        victim: hit.life.opener,
        fault: Some(fault),
        once: Some(hit.life.generation),
        ..context.incident(fd, message)
    }
}
