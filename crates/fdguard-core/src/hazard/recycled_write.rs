//! Data written to another descriptor because the number was closed and reused.
//!
//! Evidence: [`stale::stale_use`] by a call that writes and succeeds. This is how a TLS record gets
//! into a database.

use super::context::{EventContext, called};
use super::incident::Incident;
use super::stale::{self, StaleUse};
use super::{Rule, RuleKind};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "recycled-write",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "data meant for a closed descriptor is written to another one that reused its number",
    cwe: Some(672),
    requirement: "R40",
    fix: Some(
        "let only the owner close; other threads call shutdown(). Check what was hit: its content is damaged",
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
        .map_or_else(|| "data".to_owned(), |record| format!("a {record}"));
    let message = format!(
        "thread {thread} wrote {what} meant for a closed {} to fd {fd}, which is now a {}",
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
