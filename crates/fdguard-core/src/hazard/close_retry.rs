//! A close that is retried after a signal interrupted it.
//!
//! Evidence: `close` returned `EINTR`, and the thread's next action on that number is to close it
//! again. Linux released the number at the first attempt.

use super::context::{EventContext, called, is_stream};
use super::incident::Incident;
use super::{Fault, Rule, RuleKind};
use crate::event::{CloseCall, Errno, What};
use crate::ledger::FdLifetime;
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "close-retry",
    kind: RuleKind::Hazard,
    severity: Severity::Warning,
    summary: "close is retried after EINTR, when the number may already belong to another descriptor",
    cwe: Some(675),
    requirement: "R21",
    fix: Some("never retry close on Linux: it releases the descriptor whatever it returns"),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    retried(context).into_iter().collect()
}

fn retried(context: &EventContext<'_>) -> Option<Incident> {
    let What::Close {
        fd,
        call: CloseCall::Close,
        errno,
    } = context.event.what
    else {
        return None;
    };
    let (process, thread) = (context.event.process, context.event.thread);
    let first = context.memory.interrupted(process, thread, fd)?;
    let hit = context.current(fd).filter(|_| errno != Some(Errno::Ebadf));
    let outcome = match hit {
        Some(hit) => format!(
            " and hit a {} opened there since",
            called(hit.class.as_ref())
        ),
        None => "; the number was free by then".to_owned(),
    };
    let message = format!("thread {thread} closed fd {fd} again after EINTR{outcome}");
    let life = first.life.as_ref();
    let found = Incident {
        class: life.and_then(|life| life.class.clone()),
        opener: life.and_then(|life| life.opener),
        closer: Some(first.actor),
        user: Some(context.actor()),
        victim: hit.and_then(|hit: &FdLifetime| hit.opener),
        fault: Some(Fault::User),
        ..context.incident(fd, message)
    };
    (!is_stream(fd)).then_some(found)
}
