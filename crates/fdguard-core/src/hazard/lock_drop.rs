//! A close that drops the process's POSIX locks on a file.
//!
//! Evidence: the process holds a lock on the file through one descriptor, which is open, and closes
//! another descriptor of the same file (same mount and inode). SQLite never does that.

use super::incident::Incident;
use super::scene::Scene;
use super::{Fault, HazardRule};
use crate::event::{DeathHow, What};
use crate::ledger::{Lifetime, Slot};
use crate::lint::Severity;

pub(super) const RULE: HazardRule = HazardRule {
    id: "lock-drop",
    severity: Severity::Critical,
    summary: "closing one descriptor of a file drops the locks that the process holds through another",
    cwe: Some(667),
    requirement: "R43",
    fix: "do not open a file that is locked in the same process: ask through SQL, or look from a child process",
    check,
};

fn check(scene: &Scene<'_>) -> Vec<Incident> {
    dropped(scene).into_iter().collect()
}

fn dropped(scene: &Scene<'_>) -> Option<Incident> {
    let What::Death {
        how: DeathHow::Close | DeathHow::Dup2,
        ..
    } = scene.event.what
    else {
        return None;
    };
    let fd = scene.closes()?;
    let life = scene.current(fd).filter(|life| !scene.is_late(life))?;
    let process = scene.event.process;
    let locks = scene.memory.locks(process, life.file?)?;
    let holder = scene.ledger.slot(process, locks.fd).and_then(Slot::current);
    let is_held = holder.is_some_and(|holder: &Lifetime| holder.generation == locks.generation);
    if locks.fd == fd || !is_held {
        return None;
    }
    let message = format!(
        "thread {} closed {fd} and so dropped the locks that the process holds on the same file through {}",
        scene.event.thread, locks.fd
    );
    Some(Incident {
        class: life.class.clone(),
        opener: life.opener,
        closer: Some(scene.actor()),
        user: Some(locks.actor),
        fault: Some(Fault::Closer),
        ..scene.incident(fd, message)
    })
}
