//! A use of a descriptor number after it was closed.
//!
//! Evidence: the call fails with `EBADF`, nothing was opened at the number since a known close. Or it
//! reaches another descriptor and is proven to be meant for an earlier one ([`stale::stale_use`]); where
//! that puts bytes into the other one, it is a `recycled-write`. Calls that programs probe with are not judged.

use super::incident::Incident;
use super::scene::{Scene, called, is_stream};
use super::stale::{self, StaleUse};
use super::{Fault, HazardRule, double_close};
use crate::event::{Call, Errno, What};
use crate::lint::Severity;

pub(super) const RULE: HazardRule = HazardRule {
    id: "use-after-close",
    severity: Severity::Critical,
    summary: "a descriptor number is used after it was closed",
    cwe: Some(910),
    requirement: "R40",
    fix: "close only when every user is done, and keep the object instead of its number",
    check,
};

fn check(scene: &Scene<'_>) -> Vec<Incident> {
    // Where the close itself is proven wrong, that is the hazard and this its consequence.
    if double_close::noticed(scene).is_some() {
        return Vec::new();
    }
    let stale = stale::stale_use(scene).filter(|stale| stale.has_failed || !stale.call.writes());
    let found = stale.map(|stale| hits(scene, &stale));
    found.or_else(|| fails(scene)).into_iter().collect()
}

fn fails(scene: &Scene<'_>) -> Option<Incident> {
    let What::Use {
        fd,
        call,
        errno: Some(Errno::Ebadf),
        ..
    } = scene.event.what
    else {
        return None;
    };
    if is_stream(fd) || call == Call::Other {
        return None;
    }
    let thread = scene.event.thread;
    let last = scene.last_closed(fd)?;
    let last = stale::meant(scene.slot(fd)?, last, thread).unwrap_or(last);
    let closer = last.named_closer()?;
    let message = format!(
        "thread {thread} called {}() on fd {fd} (EBADF) after thread {} had closed that {}",
        call.name(),
        closer.thread,
        called(last.life.class.as_ref())
    );
    // Who uses it for the first time has no claim yet, but a stranger had no right to close it either.
    let fault = if stale::is_taken(last) && closer.thread != thread {
        Fault::Closer
    } else {
        stale::fault(last, thread)
    };
    Some(Incident {
        class: last.life.class.clone(),
        opener: last.life.opener,
        closer: Some(closer),
        user: Some(scene.actor()),
        fault: Some(fault),
        ..scene.incident(fd, message)
    })
}

fn hits(scene: &Scene<'_>, stale: &StaleUse<'_>) -> Incident {
    let StaleUse {
        fd,
        call,
        meant,
        hit,
        ..
    } = stale;
    let thread = scene.event.thread;
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
        user: Some(scene.actor()),
        victim: hit.opener,
        fault: Some(stale::fault(meant, thread)),
        ..scene.incident(*fd, message)
    }
}
