//! A close that drops the process's POSIX locks on a file.
//!
//! Evidence: the process holds a lock on the file through one open descriptor and closes another
//! descriptor of the same file (same mount and inode), and no thread released a lock of the file
//! while the close was in progress. SQLite closes its own descriptors only when it holds no lock; a
//! race between its check and its close is not the program's to fix (decision 054).

use super::context::EventContext;
use super::incident::Incident;
use super::overlap::Doubt;
use super::{Fault, Hazard, Party, Rule, RuleKind};
use crate::event::{CloseCall, What};
use crate::ledger::{FdLifetime, FdSlot};
use crate::lint::Severity;

pub(super) const RULE: Rule = Rule {
    id: "lock-drop",
    kind: RuleKind::Hazard,
    severity: Severity::Critical,
    summary: "closing one descriptor of a file drops the locks that the process holds through another",
    cwe: Some(667),
    requirement: "R43",
    fix: Some(
        "do not open a file again that the same process has locked: query through SQL, or read it from a child process",
    ),
};

pub(super) fn check(context: &EventContext<'_>) -> Vec<Incident> {
    dropped(context).into_iter().collect()
}

fn dropped(context: &EventContext<'_>) -> Option<Incident> {
    let What::Close { call, .. } = context.event.what else {
        return None;
    };
    let fd = context.closes()?;
    let life = context.current(fd).filter(|life| !context.is_late(life))?;
    let process = context.event.process;
    let file = life.file?;
    let locks = context.memory.locks(process, file)?;
    let holder = context
        .ledger
        .slot(process, locks.fd)
        .and_then(FdSlot::current);
    let is_held = holder.is_some_and(|holder: &FdLifetime| holder.generation == locks.generation);
    let is_ordered = match call {
        CloseCall::Close => true,
        // It is reported after the call: another thread may have taken a lock since.
        CloseCall::Dup2 => !locks.is_shared && locks.actor.thread == context.event.thread,
        _ => false,
    };
    if locks.fd == fd || !is_held || !is_ordered {
        return None;
    }
    let message = format!(
        "thread {} closed fd {fd} and dropped the locks that the process holds on the same file through fd {}",
        context.event.thread, locks.fd
    );
    Some(Incident {
        class: life.class.clone(),
        opener: life.opener,
        closer: Some(context.actor()),
        user: Some(locks.actor),
        fault: Some(Fault::Closer),
        doubt: Some(Doubt {
            file,
            holder: locks.fd,
            changing: context.memory.others_locking(context.event, file),
        }),
        ..context.incident(fd, message)
    })
}

/// Whether SQLite itself closed a descriptor that it had opened.
pub(super) fn is_of_sqlite(hazard: &Hazard) -> bool {
    hazard.rule == RULE.id
        && [&hazard.opener, &hazard.closer]
            .into_iter()
            .all(|party| party.as_ref().is_some_and(is_sqlite))
}

/// Whether SQLite made the call: one of its functions, or code in its library.
fn is_sqlite(party: &Party) -> bool {
    const LIBRARY: &str = "sqlite3";
    // SQLite's static functions that open and close, for when it is part of another module.
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
