//! A use of a descriptor number after it was closed.
//!
//! Evidence: the call fails with `EBADF`, and nothing was opened at the number since a known close,
//! alone or with a range of numbers. Or it reaches another descriptor and is proven to be meant for
//! an earlier one ([`stale::stale_use`]); if it writes bytes into the other one, it is a
//! `recycled-write`. Calls that programs use to probe are not judged.

use super::context::{EventContext, called, is_deliberate, is_stream};
use super::incident::Incident;
use super::second_close::SecondClose;
use super::stale::{self, StaleUse};
use super::{Fault, Rule, RuleKind, double_close};
use crate::event::{CloseCall, Errno, FdCall, What};
use crate::ledger::{ClosedFd, FdSlot};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "use-after-close",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "a descriptor number is used after it was closed",
    cwe: Some(910),
    requirement: "R40",
    fix: Some("close only when every user is done, and keep the object instead of its number"),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    // If the close itself is proven wrong, that is the hazard and this is its consequence.
    if double_close::noticed(context).is_some() {
        return Vec::new();
    }
    let stale = stale::stale_use(context).filter(|stale| stale.has_failed || !stale.call.writes());
    let found = stale.map(|stale| hits(context, &stale));
    found.or_else(|| fails(context)).into_iter().collect()
}

fn fails(context: &EventContext<'_>) -> Option<Incident> {
    let What::Use {
        fd,
        call,
        errno: Some(Errno::Ebadf),
        ..
    } = context.event.what
    else {
        return None;
    };
    if is_stream(fd) || call == FdCall::Other {
        return None;
    }
    let thread = context.event.thread;
    let last = context.last_gone(fd)?;
    let slot = context.slot(fd)?;
    let usual = || stale::meant(slot, last, thread);
    let last = habitual(context, slot, last).or_else(usual).unwrap_or(last);
    let closer = last.named_closer()?;
    let message = format!(
        "thread {thread} called {}() on fd {fd} (EBADF) after thread {} had closed that {}",
        call.name(),
        closer.thread,
        called(last.life.class.as_ref())
    );
    // A thread's first use gives it no claim yet, but an unrelated thread had no right to close it
    // either.
    let fault = if stale::is_taken(last) && closer.thread != thread {
        Fault::Closer
    } else {
        stale::fault(last, thread)
    };
    Some(Incident {
        class: last.life.class.clone(),
        opener: last.life.opener,
        closer: Some(closer),
        user: Some(context.actor()),
        fault: Some(fault),
        second_close: SecondClose::suspect(context, fd, last),
        ..context.incident(fd, message)
    })
}

/// What the thread had at this number before `last`, if the line has worked on what was opened
/// there and never on what the opener of `last` opens: code that opened and closed something else
/// in between has nothing to do with it.
fn habitual<'a>(
    context: &EventContext<'_>,
    slot: &'a FdSlot,
    last: &ClosedFd,
) -> Option<&'a ClosedFd> {
    let (line, thread) = (context.event.stack, context.event.thread);
    let uses = |past: &ClosedFd| context.memory.uses(line, past.life.stack());
    if uses(last) > 0 {
        return None;
    }
    let mut known = slot
        .past()
        .take_while(|past| past.call != CloseCall::Dup2)
        .filter(|past| is_deliberate(past) && !past.life.inherited);
    known.find(|past| stale::has_claim(past, thread) && uses(past) > 0)
}

fn hits(context: &EventContext<'_>, stale: &StaleUse<'_>) -> Incident {
    let StaleUse {
        fd,
        call,
        meant,
        hit,
        ..
    } = stale;
    let thread = context.event.thread;
    let message = format!(
        "thread {thread} called {}() on fd {fd} for a closed {} and reached a {} opened there since",
        call.name(),
        called(meant.life.class.as_ref()),
        called(hit.class.as_ref())
    );
    Incident {
        class: meant.life.class.clone(),
        opener: meant.life.opener,
        closer: meant.named_closer(),
        user: Some(context.actor()),
        victim: hit.opener,
        fault: Some(stale::fault(meant, thread)),
        ..context.incident(*fd, message)
    }
}
