//! The cleanup: ends everything that runs and waits for it, searches for processes without a
//! keeper, then handles descriptors and files, and directories last. A failure stops nothing.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{BoxFuture, join_all};
use jiff::Timestamp;
use rustix::net::{Shutdown, shutdown};
use tokio::task::JoinError;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::clean_up::{
    CleanUp, CleanUpAction, CloseReason, EnvironmentScan, Kind, ResourceOutcome, SCHEMA,
    SUCCESS_RULE,
};
use super::context::ScopeEvent;
use super::end::{
    Around, ScopeEnd, delete_directory, end_file, end_process, end_program, end_session, too_long,
};
use super::leftover;
use super::record::Record;
use super::resource::{Entry, Ownership, Resource};

/// Files handled in parallel: each takes a blocking thread.
const FILES_AT_A_TIME: usize = 4;

/// The scope to clean up.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) scope: String,
    pub(super) name: String,
    /// The mark in the environment of its processes.
    pub(super) mark: Option<String>,
}

/// Ends everything, with the entry in the registry around it. Never fails: errors are in the
/// result.
pub(super) async fn close(
    subject: Subject,
    entries: Vec<Entry>,
    around: Around,
    record: Option<Record>,
) -> CleanUp {
    let limit = around.how.limit;
    let mut errors = Vec::new();
    let mut note = |result: Result<Result<_, String>, Elapsed>| match result {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            errors.push(format!("cannot update the registry: {error}"));
            None
        }
        Err(_elapsed) => {
            errors.push(format!("cannot update the registry: {}", too_long(limit)));
            None
        }
    };
    let claimed = match record {
        Some(record) => note(timeout(limit, record.claim(files(&entries))).await),
        None => None,
    };
    let broken = BrokenClose::new(&subject, around.why);
    let (means, scope) = (Arc::clone(&around.means), subject.scope.clone());
    // In its own task: if it panics, the waiting callers still get an answer.
    let work = tokio::spawn(clean_up(subject, entries, around));
    let mut clean_up = work.await.unwrap_or_else(|error| broken.told(&error));
    clean_up.errors.extend(errors);
    if let Some(claimed) = claimed {
        let finished = timeout(limit, claimed.finish(&clean_up)).await;
        let finished = finished.unwrap_or_else(|_elapsed| Err(too_long(limit)));
        let failed = finished
            .err()
            .map(|error| format!("cannot update the registry: {error}"));
        clean_up.errors.extend(failed);
    }
    if let Some(Err(error)) = means.wills.as_ref().map(|wills| wills.forget(&scope)) {
        clean_up
            .errors
            .push(format!("cannot remove the scope's journal: {error}"));
    }
    clean_up
}

fn files(entries: &[Entry]) -> Vec<String> {
    let is_file = |entry: &&Entry| entry.resource.kind() == Kind::File;
    let files = entries.iter().filter(is_file);
    files.map(|entry| entry.resource.name()).collect()
}

async fn clean_up(subject: Subject, entries: Vec<Entry>, around: Around) -> CleanUp {
    let subject = &subject;
    let begin = Instant::now();
    let started_at = Timestamp::now().to_string();
    let next_number = entries.iter().map(|it| it.number + 1).max().unwrap_or(1);
    let mut errors = Vec::new();
    let (running, rest) = split(entries, |resource| {
        matches!(
            resource,
            Resource::Session { .. } | Resource::Program { .. } | Resource::Process { .. }
        )
    });
    let mut outcomes = at_once(subject, running, &around, usize::MAX).await;
    let (look, ended) = leftovers(subject, next_number, &around, &mut errors).await;
    outcomes.extend(ended);
    let (dirs, rest) = split(rest, |it| matches!(it, Resource::Directory { .. }));
    outcomes.extend(at_once(subject, rest, &around, FILES_AT_A_TIME).await);
    outcomes.extend(at_once(subject, dirs, &around, FILES_AT_A_TIME).await);
    outcomes.sort_by_key(|outcome| outcome.number);
    CleanUp {
        schema: SCHEMA,
        scope: subject.scope.clone(),
        name: subject.name.clone(),
        reason: around.why,
        success: CleanUp::is_success(&outcomes, look.as_ref()),
        success_rule: SUCCESS_RULE,
        started_at,
        ended_at: Timestamp::now().to_string(),
        total_ms: begin.elapsed().as_secs_f64() * 1000.0,
        resources: outcomes,
        look,
        errors,
    }
}

/// The result when the cleanup itself failed.
#[derive(Debug)]
struct BrokenClose(CleanUp);

impl BrokenClose {
    fn new(subject: &Subject, why: CloseReason) -> Self {
        let now = Timestamp::now().to_string();
        Self(CleanUp {
            schema: SCHEMA,
            scope: subject.scope.clone(),
            name: subject.name.clone(),
            reason: why,
            success: false,
            success_rule: SUCCESS_RULE,
            started_at: now.clone(),
            ended_at: now,
            total_ms: 0.0,
            resources: Vec::new(),
            look: None,
            errors: Vec::new(),
        })
    }

    fn told(mut self, error: &JoinError) -> CleanUp {
        let text = format!("cleanup failed, and the remaining resources were dropped: {error}");
        self.0.errors.push(text);
        self.0
    }
}

fn split(entries: Vec<Entry>, is_first: impl Fn(&Resource) -> bool) -> (Vec<Entry>, Vec<Entry>) {
    let first = |entry: &Entry| is_first(&entry.resource);
    entries.into_iter().partition(first)
}

/// Ends these in parallel, a limited number at a time. Each has its own task: a panic is one error.
async fn at_once(
    subject: &Subject,
    entries: Vec<Entry>,
    around: &Around,
    most: usize,
) -> Vec<ResourceOutcome> {
    let mut outcomes = Vec::new();
    let mut entries = entries.into_iter().peekable();
    while entries.peek().is_some() {
        let some: Vec<Entry> = entries.by_ref().take(most).collect();
        let ends = some.into_iter().map(|entry| one(entry, around.clone()));
        outcomes.extend(join_all(ends).await);
    }
    for outcome in &outcomes {
        if let Some(error) = &outcome.error {
            around.means.observer.tell(&ScopeEvent::Failed {
                scope: subject.scope.clone(),
                number: outcome.number,
                error: error.clone(),
            });
        }
    }
    outcomes
}

async fn one(entry: Entry, around: Around) -> ResourceOutcome {
    let begin = Instant::now();
    let (number, kind, name) = (entry.number, entry.resource.kind(), entry.resource.name());
    if entry.ownership == Ownership::Lent {
        return ScopeEnd::fine(CleanUpAction::Kept).outcome(number, kind, name, begin);
    }
    let end = tokio::spawn(end(entry.resource, around)).await;
    let end = end.unwrap_or_else(|error| ScopeEnd::failed(error.to_string()));
    end.outcome(number, kind, name, begin)
}

fn end(resource: Resource, around: Around) -> BoxFuture<'static, ScopeEnd> {
    Box::pin(async move {
        match resource {
            Resource::Session { id } => end_session(&id, &around).await,
            Resource::Program { program, .. } => end_program(&program, &around).await,
            Resource::Process { identity } => end_process(&identity, &around).await,
            Resource::Descriptor { fd, .. } => {
                drop(fd);
                ScopeEnd::fine(CleanUpAction::Closed)
            }
            Resource::Socket { fd, .. } => {
                // Holders of a duplicate must see its end as well. A socket that is not connected
                // returns an error and is closed.
                let _not_connected = shutdown(&fd, Shutdown::Both);
                drop(fd);
                ScopeEnd::fine(CleanUpAction::Closed)
            }
            Resource::File { path, end } => end_file(path, end, around).await,
            Resource::Directory { path, id } => delete_directory(path, id, around).await,
        }
    })
}

/// Searches for processes without a keeper, ends them if requested, and searches again.
async fn leftovers(
    subject: &Subject,
    first_number: u64,
    around: &Around,
    errors: &mut Vec<String>,
) -> (Option<EnvironmentScan>, Vec<ResourceOutcome>) {
    let Some(mark) = subject.mark.clone() else {
        errors.push("cannot mark the scope's processes: /proc is not readable".to_owned());
        return (None, Vec::new());
    };
    let mark = Arc::new(mark);
    let found = match find_leftovers(&mark).await {
        Ok(found) => found,
        Err(error) => {
            errors.push(format!("cannot search for the scope's processes: {error}"));
            return (None, Vec::new());
        }
    };
    if found.identities.is_empty() || !around.how.end_leftovers {
        return (Some(found.look), Vec::new());
    }
    let ends = found
        .identities
        .iter()
        .zip(&found.look.leftovers)
        .zip(first_number..);
    let ends = ends.map(|((identity, leftover), number)| async move {
        let begin = Instant::now();
        let end = end_process(identity, around).await;
        let name = format!("{} (pid {})", leftover.comm, leftover.pid);
        end.outcome(number, Kind::Leftover, name, begin)
    });
    let outcomes = join_all(ends).await;
    match find_leftovers(&mark).await {
        Ok(again) => (Some(again.look), outcomes),
        Err(error) => {
            errors.push(format!(
                "cannot repeat the search for the scope's processes: {error}"
            ));
            (Some(found.look), outcomes)
        }
    }
}

async fn find_leftovers(mark: &Arc<String>) -> std::io::Result<leftover::FoundLeftovers> {
    let mark = Arc::clone(mark);
    let found = tokio::task::spawn_blocking(move || leftover::find_leftovers(&mark)).await;
    found.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
