//! `select()` with a number that has no bit in its set.
//!
//! Evidence: the first argument exceeds 1024 and a descriptor with such a number is open. (The old
//! habit of passing the size of the table is harmless while all numbers are small: the kernel
//! truncates it.)

use super::context::EventContext;
use super::incident::Incident;
use super::{Fault, Rule, RuleKind};
use crate::event::What;
use crate::lint::Severity;

/// Bits in an `fd_set`.
const BITS: u32 = 1024;

pub(super) const RULE: Rule = Rule {
    id: "select-past-1024",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "select() is called with a descriptor number of 1024 or more",
    cwe: Some(787),
    requirement: "R7",
    fix: Some("use poll or epoll, and find what holds the low numbers"),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    let What::Select { nfds } = context.event.what else {
        return Vec::new();
    };
    if nfds <= BITS {
        return Vec::new();
    }
    let live = context.ledger.live(context.event.process);
    let high = live.filter(|(fd, _)| (BITS..nfds).contains(fd)).last();
    let incident = |(fd, life): (u32, &crate::ledger::FdLifetime)| {
        let message = format!(
            "thread {} called select() with numbers up to {}; an fd_set ends at {}",
            context.event.thread,
            nfds - 1,
            BITS - 1
        );
        Incident {
            class: life.class.clone(),
            opener: life.opener,
            user: Some(context.actor()),
            fault: Some(Fault::User),
            ..context.incident(fd, message)
        }
    };
    high.map(incident).into_iter().collect()
}
