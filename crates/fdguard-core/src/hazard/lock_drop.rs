//! A close that drops the process's POSIX locks on a file.
//!
//! Evidence: the process holds a lock on the file through one descriptor, which is open, and closes
//! another descriptor of the same file (same mount and inode), and no thread gave back a lock of the file
//! while the close was under way. SQLite closes its own descriptors only when it holds no lock, and
//! what happens between its look and its close is not the program's to repair (decision 054).

use super::incident::Incident;
use super::overlap::Doubt;
use super::scene::Scene;
use super::{Fault, Hazard, HazardRule, Party};
use crate::event::{DeathHow, What};
use crate::ledger::{Lifetime, Slot};
use crate::lint::Severity;

pub(super) const RULE: HazardRule = HazardRule {
    id: "lock-drop",
    severity: Severity::Critical,
    summary: "closing one descriptor of a file drops the locks that the process holds through another",
    cwe: Some(667),
    requirement: "R43",
    fix: "do not open a file again that the same process has locked: query through SQL, or read it from a child process",
    check,
};

fn check(scene: &Scene<'_>) -> Vec<Incident> {
    dropped(scene).into_iter().collect()
}

fn dropped(scene: &Scene<'_>) -> Option<Incident> {
    let What::Death { how, .. } = scene.event.what else {
        return None;
    };
    let fd = scene.closes()?;
    let life = scene.current(fd).filter(|life| !scene.is_late(life))?;
    let process = scene.event.process;
    let file = life.file?;
    let locks = scene.memory.locks(process, file)?;
    let holder = scene.ledger.slot(process, locks.fd).and_then(Slot::current);
    let is_held = holder.is_some_and(|holder: &Lifetime| holder.generation == locks.generation);
    let is_ordered = match how {
        DeathHow::Close => true,
        // It is told after the call: a lock of another thread may have come since.
        DeathHow::Dup2 => !locks.is_shared && locks.actor.thread == scene.event.thread,
        _ => false,
    };
    if locks.fd == fd || !is_held || !is_ordered {
        return None;
    }
    let message = format!(
        "thread {} closed fd {fd} and dropped the locks that the process holds on the same file through fd {}",
        scene.event.thread, locks.fd
    );
    Some(Incident {
        class: life.class.clone(),
        opener: life.opener,
        closer: Some(scene.actor()),
        user: Some(locks.actor),
        fault: Some(Fault::Closer),
        doubt: Some(Doubt {
            file,
            holder: locks.fd,
            changing: scene.memory.others_locking(scene.event, file),
        }),
        ..scene.incident(fd, message)
    })
}

/// Whether SQLite itself closed a descriptor that it had opened.
pub(super) fn is_of_sqlite(hazard: &Hazard) -> bool {
    hazard.rule == RULE.id
        && [&hazard.opener, &hazard.closer]
            .into_iter()
            .all(|party| party.as_ref().is_some_and(is_sqlite))
}

/// Whether the call was made by SQLite: by a function of it, or in its library.
fn is_sqlite(party: &Party) -> bool {
    const LIBRARY: &str = "sqlite3";
    // Static functions of it that open and close, where it is part of another module.
    const FUNCTIONS: &[&str] = &["closeUnixFile", "robust_close", "robust_open", "unixClose"];
    let Some(frame) = party.stack.first() else {
        return false;
    };
    let module = frame.module.as_ref().map(|module| module.to_lossy());
    let is_module = module.is_some_and(|module| {
        let name = module.rsplit('/').next().unwrap_or_default();
        name.contains(LIBRARY)
    });
    let is_function = frame
        .function
        .as_deref()
        .is_some_and(|name| name.starts_with(LIBRARY) || FUNCTIONS.contains(&name));
    is_module || is_function
}
