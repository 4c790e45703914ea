//! A close while another thread is inside a call on the same descriptor.
//!
//! Evidence: an `Enter` of the other thread without its `Leave`, on exactly the generation that is
//! closed. Nothing has to be damaged yet: the number is free while the other thread still uses it.
//! `dup2` over a number in use is a redirection and not a hazard; neither is `shutdown`.

use super::context::{EventContext, called, is_stream};
use super::incident::Incident;
use super::memory::Inside;
use super::{Fault, Rule, RuleKind, double_close, stale};
use crate::Fd;
use crate::event::{CloseCall, What};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "stranger-close",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "a thread closes a descriptor while another thread is in a call on it",
    cwe: Some(362),
    requirement: "R40",
    fix: Some(
        "let only the owner close; other threads call shutdown(), which wakes the owner and frees no number",
    ),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    let event = context.event;
    let numbers: Vec<Fd> = match event.what {
        What::Close {
            call: CloseCall::Close,
            ..
        } => context.closes().into_iter().collect(),
        What::CloseRange {
            first,
            last,
            at_exec: false,
        } => {
            let live = context.ledger.live(event.process).map(|(fd, _)| fd);
            live.filter(|fd| (first..=last).contains(fd)).collect()
        }
        _ => return Vec::new(),
    };
    let numbers = numbers.into_iter().filter(|fd| !is_stream(*fd));
    numbers.filter_map(|fd| torn(context, fd)).collect()
}

fn torn(context: &EventContext<'_>, fd: Fd) -> Option<Incident> {
    let life = context.current(fd);
    if life.is_some_and(|life| context.is_late(life)) {
        return None;
    }
    // A thread inside a call on a stale number is not an owner, and a wrong close is reported as
    // such.
    let is_owner = |inside: &&Inside| {
        let slot = context.slot(fd);
        slot.is_none_or(|slot| stale::orphaned(slot, inside.actor.thread).is_none())
    };
    let mut others = context
        .memory
        .others_inside(context.event, context.ledger, fd);
    let Inside { call, actor, .. } = *others.find(is_owner)?;
    if double_close::struck(context, fd).is_some() {
        return None;
    }
    let class = life.and_then(|life| life.class.as_ref());
    let message = format!(
        "thread {} closed fd {fd} ({}) while thread {} was in {}() on it",
        context.event.thread,
        called(class),
        actor.thread,
        call.name()
    );
    Some(Incident {
        class: class.cloned(),
        opener: life.and_then(|life| life.opener),
        closer: Some(context.actor()),
        user: Some(actor),
        fault: Some(Fault::Closer),
        ..context.incident(fd, message)
    })
}
