//! Data that is written to another descriptor, because the number was closed and reused.
//!
//! Evidence: [`stale::stale_use`] by a call that writes and succeeds. This is how a TLS record gets into a database.

use super::HazardRule;
use super::incident::Incident;
use super::scene::{Scene, called};
use super::stale::{self, StaleUse};
use crate::lint::Severity;

pub(super) const RULE: HazardRule = HazardRule {
    id: "recycled-write",
    severity: Severity::Critical,
    summary: "data meant for a closed descriptor is written to another one that reused its number",
    cwe: Some(672),
    requirement: "R40",
    fix: "let only the owner close; other threads call shutdown(). Check what was hit: its content is damaged",
    check,
};

fn check(scene: &Scene<'_>) -> Vec<Incident> {
    let stale = stale::stale_use(scene).filter(|stale| stale.call.writes() && !stale.has_failed);
    stale
        .map(|stale| incident(scene, &stale))
        .into_iter()
        .collect()
}

fn incident(scene: &Scene<'_>, stale: &StaleUse<'_>) -> Incident {
    let StaleUse { fd, meant, hit, .. } = stale;
    let thread = scene.event.thread;
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
        user: Some(scene.actor()),
        victim: hit.opener,
        fault: Some(stale::fault(meant, thread)),
        ..scene.incident(*fd, message)
    }
}
