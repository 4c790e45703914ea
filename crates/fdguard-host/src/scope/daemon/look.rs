//! Observations of a scope by the daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fdguard_process::tree::Exit;

use super::super::Scope;
use super::super::resource::{Entry, FileEnd, Resource, ResourceRole};
use super::super::root::ScopeRoot;
use super::judge::{AgentFacts, AgentStatus, MainResource};

/// A scope, and its observed state.
#[derive(Debug)]
pub(super) struct ObservedScope {
    pub(super) scope: Arc<Scope>,
    pub(super) seen: AgentFacts,
    /// The files that its agent writes.
    pub(super) outputs: Vec<PathBuf>,
}

/// Examines the processes and sessions of a scope; `None` if it is no longer open. It blocks for a
/// few reads of `/proc`.
pub(super) fn processes(scope: &Arc<Scope>) -> Option<ObservedScope> {
    let mut sessions = Vec::new();
    let mut mains = Vec::new();
    let mut outputs = Vec::new();
    let (status, touched) = {
        let state = scope.state();
        for entry in state.entries.as_ref()? {
            match &entry.resource {
                Resource::Session { id } => sessions.push((id.clone(), entry.role)),
                Resource::File { path, end } if *end != FileEnd::Delete => {
                    outputs.push(path.clone());
                }
                _ => mains.extend(main(entry)),
            }
        }
        (state.status, state.touched)
    };
    let mut idle = touched.elapsed();
    for (id, role) in sessions {
        let host = scope.means.host.as_ref();
        let seen = host.and_then(|host| host.session(&id).ok());
        if let Some(seen) = &seen {
            let is_busy = seen.busy_ms.is_some();
            let since = if is_busy { 0 } else { seen.idle_ms };
            idle = idle.min(Duration::from_millis(since));
        }
        if role == ResourceRole::Main {
            let is_alive = seen.is_some_and(|seen| seen.pid.is_some());
            mains.push(MainResource::Session { is_alive });
        }
    }
    let seen = AgentFacts {
        status,
        mains,
        unchanged: None,
        idle,
    };
    Some(ObservedScope {
        scope: Arc::clone(scope),
        seen,
        outputs,
    })
}

fn main(entry: &Entry) -> Option<MainResource> {
    if entry.role != ResourceRole::Main {
        return None;
    }
    match &entry.resource {
        Resource::Program { program, .. } => {
            let state = program.state();
            let exit = state.main;
            Some(MainResource::Process {
                is_alive: exit.is_none() && state.over.is_none(),
                has_succeeded: exit.map(|exit| exit == Exit::Code(0)),
            })
        }
        Resource::Process { identity } => Some(MainResource::Process {
            is_alive: identity.is_alive(),
            has_succeeded: None,
        }),
        _ => None,
    }
}

/// Reads when its outputs changed. An agent that has not written yet is measured from its start. It
/// blocks.
pub(super) fn files(looked: &mut ObservedScope, now: SystemTime) {
    let root = looked.scope.root();
    let newest = |path: &PathBuf| changed(root, path);
    let newest = looked.outputs.iter().filter_map(newest).max();
    let age = newest.map(|at| now.duration_since(at).unwrap_or_default());
    if let Some(age) = age {
        looked.seen.idle = looked.seen.idle.min(age);
    }
    if !looked.outputs.is_empty() && looked.seen.status == AgentStatus::Running {
        let since_start = looked.scope.born.elapsed();
        looked.seen.unchanged = Some(age.map_or(since_start, |age| age.min(since_start)));
    }
}

fn changed(root: &ScopeRoot, path: &Path) -> Option<SystemTime> {
    let place = root.find(path).ok().flatten()?;
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statat(&place.parent, &place.name, flags).ok()?;
    let seconds = u64::try_from(stat.st_mtime).ok()?;
    let nanos = u32::try_from(stat.st_mtime_nsec).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}
