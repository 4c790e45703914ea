//! A close while another thread is inside a call on the same descriptor.
//!
//! Evidence: an `Enter` of the other thread without its `Leave`, on the very generation that is closed.
//! Nothing has to be damaged yet: the number is free while the other thread goes on using it. `dup2` over a
//! number that is in use is a redirection and no hazard; nor is `shutdown`.

use super::incident::Incident;
use super::memory::Inside;
use super::scene::{Scene, called, is_stream};
use super::{Fault, HazardRule, double_close, stale};
use crate::Fd;
use crate::event::{DeathHow, What};
use crate::lint::Severity;

pub(super) const RULE: HazardRule = HazardRule {
    id: "stranger-close",
    severity: Severity::Critical,
    summary: "a thread closes a descriptor while another thread is in a call on it",
    cwe: Some(362),
    requirement: "R40",
    fix: "let only the owner close; other threads call shutdown(), which wakes the owner and frees no number",
    check,
};

fn check(scene: &Scene<'_>) -> Vec<Incident> {
    let event = scene.event;
    let numbers: Vec<Fd> = match event.what {
        What::Death {
            how: DeathHow::Close,
            ..
        } => scene.closes().into_iter().collect(),
        What::CloseRange {
            first,
            last,
            at_exec: false,
        } => {
            let live = scene.ledger.live(event.process).map(|(fd, _)| fd);
            live.filter(|fd| (first..=last).contains(fd)).collect()
        }
        _ => return Vec::new(),
    };
    let numbers = numbers.into_iter().filter(|fd| !is_stream(*fd));
    numbers.filter_map(|fd| torn(scene, fd)).collect()
}

fn torn(scene: &Scene<'_>, fd: Fd) -> Option<Incident> {
    let life = scene.current(fd);
    if life.is_some_and(|life| scene.is_late(life)) {
        return None;
    }
    // Whoever is inside by a stale number is no owner, and a wrong close is told as such.
    let is_owner = |inside: &&Inside| {
        let slot = scene.slot(fd);
        slot.is_none_or(|slot| stale::orphaned(slot, inside.actor.thread).is_none())
    };
    let mut others = scene.memory.others_inside(scene.event, scene.ledger, fd);
    let Inside { call, actor, .. } = *others.find(is_owner)?;
    if double_close::struck(scene, fd).is_some() {
        return None;
    }
    let class = life.and_then(|life| life.class.as_ref());
    let message = format!(
        "thread {} closed fd {fd} ({}) while thread {} was in {}() on it",
        scene.event.thread,
        called(class),
        actor.thread,
        call.name()
    );
    Some(Incident {
        class: class.cloned(),
        opener: life.and_then(|life| life.opener),
        closer: Some(scene.actor()),
        user: Some(actor),
        fault: Some(Fault::Closer),
        ..scene.incident(fd, message)
    })
}
