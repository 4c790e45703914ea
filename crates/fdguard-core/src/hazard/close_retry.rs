//! A close that is retried after a signal interrupted it.
//!
//! Evidence: `close` gave `EINTR`, and the next thing that the same thread does with that number is to
//! close it again. Linux had released the number at the first try.

use super::incident::Incident;
use super::scene::{Scene, called, is_stream};
use super::{Fault, HazardRule};
use crate::event::{DeathHow, Errno, What};
use crate::ledger::Lifetime;
use crate::lint::Severity;

pub(super) const RULE: HazardRule = HazardRule {
    id: "close-retry",
    severity: Severity::Warning,
    summary: "close is retried after EINTR, when the number may already belong to another descriptor",
    cwe: Some(675),
    requirement: "R21",
    fix: "never retry close on Linux: it releases the descriptor whatever it returns",
    check,
};

fn check(scene: &Scene<'_>) -> Vec<Incident> {
    retried(scene).into_iter().collect()
}

fn retried(scene: &Scene<'_>) -> Option<Incident> {
    let What::Death {
        fd,
        how: DeathHow::Close,
        errno,
    } = scene.event.what
    else {
        return None;
    };
    let (process, thread) = (scene.event.process, scene.event.thread);
    let first = scene.memory.interrupted(process, thread, fd)?;
    let hit = scene.current(fd).filter(|_| errno != Some(Errno::Ebadf));
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
        user: Some(scene.actor()),
        victim: hit.and_then(|hit: &Lifetime| hit.opener),
        fault: Some(Fault::User),
        ..scene.incident(fd, message)
    };
    (!is_stream(fd)).then_some(found)
}
