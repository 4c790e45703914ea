//! Bytes that land in another descriptor, because the number was closed and given out again.
//!
//! Evidence: [`stale::stale_use`] by a call that writes and succeeds. This is how a TLS record gets into a database.


use super::context::{EventContext, called};
use super::incident::Incident;
use super::stale::{self, StaleUse};
use super::{Rule, RuleKind};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "recycled-write",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "bytes meant for a closed descriptor are written into another one that got its number",
    cwe: Some(672),
    requirement: "R40",
    fix: Some(
        "only the owner closes; a stranger calls shutdown(). Check what was hit: its content is damaged",
    ),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    let stale = stale::stale_use(context).filter(|stale| stale.call.writes() && !stale.has_failed);
    stale
        .map(|stale| incident(context, &stale))
        .into_iter()
        .collect()
}

fn incident(context: &EventContext<'_>, stale: &StaleUse<'_>) -> Incident {
    let StaleUse { fd, meant, hit, .. } = stale;
    let thread = context.event.thread;
    let what = stale
        .record
        .as_deref()
        .map_or_else(|| "bytes".to_owned(), |record| format!("a {record}"));
    let message = format!(
        "thread {thread} wrote {what} for a {} that was closed into {fd}, now a {} that was opened there since",
        called(meant.life.class.as_ref()),
        called(hit.class.as_ref())
    );
    Incident {
        class: hit.class.clone(),
        opener: meant.life.opener,
        closer: meant.named_closer(),
        user: Some(context.actor()),
        victim: hit.opener,
        fault: Some(stale::fault(meant, thread)),
        ..context.incident(*fd, message)
    }
}
