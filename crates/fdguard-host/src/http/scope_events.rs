//! Translates scope events into the host's event lines.

use fdguard_core::log_event::LogEvent;

use crate::host::Events;
use crate::scope::daemon::ScopeScan;
use crate::scope::{self, CleanUp, ScopeObserver};

/// An observer that emits scope events to these subscribers.
pub(super) fn observer(events: &Events) -> ScopeObserver {
    let events = events.clone();
    ScopeObserver::new(move |what| {
        if let Some(event) = told(what) {
            events.tell(&event);
        }
    })
}

/// A scan that found nothing is not reported: there is one every 30 seconds.
fn told(what: &scope::ScopeEvent) -> Option<LogEvent> {
    match what {
        scope::ScopeEvent::Closed(clean_up) => Some(closed(clean_up)),
        scope::ScopeEvent::Failed {
            scope,
            number,
            error,
        } => {
            let event = LogEvent::new("scope_resource_failed").with("scope", scope.as_str());
            Some(
                event
                    .with("resource", *number)
                    .with("error", error.as_str()),
            )
        }
        scope::ScopeEvent::Will { scope, error } => {
            let event = LogEvent::new("scope_will_failed").with("scope", scope.as_str());
            Some(event.with("error", error.as_str()))
        }
        scope::ScopeEvent::Scanned(scan) => scanned(scan),
    }
}

fn closed(clean_up: &CleanUp) -> LogEvent {
    let failed = clean_up.resources.iter().filter(|one| !one.ok).count();
    LogEvent::new("scope_close")
        .with("scope", clean_up.scope.as_str())
        .with("reason", clean_up.reason.word())
        .with("success", clean_up.success)
        .with("resources", clean_up.resources.len())
        .with("failed", failed)
        .with("ms", format!("{:.1}", clean_up.total_ms))
}

fn scanned(scan: &ScopeScan) -> Option<LogEvent> {
    let unwell = scan.verdicts.iter().filter(|one| !one.reasons.is_empty());
    let unwell: Vec<&str> = unwell.map(|one| one.scope.as_str()).collect();
    if unwell.is_empty() && scan.cleaned.is_empty() && scan.errors.is_empty() {
        return None;
    }
    let event = LogEvent::new("scope_scan")
        .with("scopes", scan.scopes)
        .with("unhealthy", unwell.join(","));
    let event = event.with("cleaned", scan.cleaned.len());
    Some(event.with("errors", scan.errors.join("; ")))
}
