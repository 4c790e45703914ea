//! A call that got no descriptor because a table is full, and the sites that filled the table.
//!
//! Evidence: the call failed with `EMFILE` or `ENFILE`. The holders are the descriptors that the
//! ledger knows to be open, by the site that opened them.

use super::context::EventContext;
use super::incident::Incident;

use super::{Rule, RuleKind};
use crate::event::{Errno, What};
use crate::ledger::{Actor, Tally};
use crate::lint::Severity;

/// The most holders that are reported.
const MOST_HOLDERS: usize = 5;

pub(super) const RULE: Rule = Rule {
    id: "exhaustion",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "a call fails because the descriptor table is full; lists what holds it",
    cwe: Some(774),
    requirement: "R19",
    fix: Some("close what the largest holder opens; raise the limit only if everything is in use"),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    let errno = match context.event.what {
        What::Refused { errno, .. } => errno,
        _ => return Vec::new(),
    };
    let whose = match errno {
        Errno::Emfile => "the descriptor table of the process is full",
        Errno::Enfile => "the file table of the host is full",
        _ => return Vec::new(),
    };
    let mut holders = context.ledger.origins(context.event.process);
    holders.retain(|holder| holder.live > 0);
    let known: u64 = holders.iter().map(|holder| holder.live).sum();
    holders.truncate(MOST_HOLDERS);
    let most = holders.iter().find(|holder| holder.stack.is_some());
    let share = most.map_or_else(String::new, |most| {
        format!(", {} of them opened by one line", most.live)
    });
    let message = format!(
        "thread {} got {errno}: {whose}; {known} descriptors known to be open{share}",
        context.event.thread
    );
    vec![Incident {
        opener: most.and_then(opener),
        user: Some(context.actor()),
        holders,
        ..Incident::new(context.event.process, context.event.at, message)
    }]
}

fn opener(most: &Tally) -> Option<Actor> {
    Some(Actor {
        thread: most.thread?,
        stack: most.stack,
        at: most.oldest?,
    })
}
