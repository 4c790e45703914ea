//! All scopes of a host, by id. The result of a closed scope stays available for a while.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    AcceptedClose, CleanUp, CloseLimits, CloseReason, CloseTicket, Scope, ScopeContext, ScopeEvent,
    ScopeSpec, ScopeView, StartFailed, StartResource,
};
use crate::Error;

/// How long results of closed scopes are kept.
const KEPT: Duration = Duration::from_secs(15 * 60);
/// Maximum number of closed scopes whose results are kept; the oldest are dropped first.
const MOST_KEPT: usize = 1000;

/// The scopes. A clone is another handle to the same ones.
#[derive(Clone, Debug)]
pub struct Scopes {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    means: Arc<ScopeContext>,
    kept_for: Duration,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    scopes: BTreeMap<String, KeptCleanUps>,
    is_closing: bool,
}

#[derive(Debug)]
struct KeptCleanUps {
    scope: Arc<Scope>,
    /// When it was found closed.
    closed: Option<Instant>,
}

impl Table {
    fn keep(&mut self, scope: &Arc<Scope>) {
        let kept = KeptCleanUps {
            scope: Arc::clone(scope),
            closed: None,
        };
        self.scopes.insert(scope.id().to_owned(), kept);
    }
}

/// Response to a close request.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum CloseAnswer {
    /// The scope is closed.
    Done(Arc<CleanUp>),
    /// The caller is a process of the scope: it will be closed shortly.
    Soon(AcceptedClose),
}

impl Scopes {
    /// An empty set of scopes.
    #[must_use]
    pub fn new(means: ScopeContext) -> Self {
        Self::keeping(means, KEPT)
    }

    /// The same, with results that are kept for this long.
    #[must_use]
    pub fn keeping(means: ScopeContext, kept_for: Duration) -> Self {
        Self {
            shared: Arc::new(Shared {
                means: Arc::new(means),
                kept_for,
                table: Mutex::default(),
            }),
        }
    }

    /// A new, empty scope.
    pub fn create(&self, spec: ScopeSpec) -> Result<Arc<Scope>, Error> {
        let scope = Arc::new(Scope::new(spec, Arc::clone(&self.shared.means))?);
        let mut table = self.table();
        if table.is_closing {
            return Err(Error::Closing);
        }
        table.keep(&scope);
        Ok(scope)
    }

    /// Starts to close the scopes of dead hosts whose root is `allowed`. Returns those scopes; what
    /// cannot be taken over is reported.
    pub async fn inherit(&self, allowed: impl Fn(&Path) -> bool) -> Vec<Arc<Scope>> {
        let means = self.means();
        let Some(wills) = &means.wills else {
            return Vec::new();
        };
        let (reader, mut inherited) = (wills.clone(), Vec::new());
        let left = tokio::task::spawn_blocking(move || reader.left()).await;
        // Fails only when the runtime ends.
        let (left, unreadable) = left.unwrap_or_default();
        let tell = |scope, error| means.observer.tell(&ScopeEvent::Will { scope, error });
        for will in unreadable {
            tell(will.scope, will.error);
        }
        for will in left {
            let (id, root) = (will.head.scope.clone(), will.head.spec().root);
            if !allowed(&root) {
                let root = root.display();
                tell(
                    id,
                    format!("{root} is no longer below any root of the host"),
                );
                continue;
            }
            match Scope::inherited(will, Arc::clone(means)) {
                Ok(scope) => {
                    let scope = Arc::new(scope);
                    self.table().keep(&scope);
                    inherited.push(scope);
                }
                Err(error) => {
                    // Without its directory there is nothing to do, now or later.
                    let forgotten = if root.exists() {
                        Ok(())
                    } else {
                        wills.forget(&id)
                    };
                    let why = forgotten
                        .err()
                        .map_or(error.to_string(), |it| it.to_string());
                    tell(id, why);
                }
            }
        }
        for scope in &inherited {
            scope.begin_close(CloseReason::HostGone, CloseLimits::default());
        }
        inherited
    }

    /// Creates a scope with all of these resources, or fails; the error then includes the release
    /// of those that were already added.
    pub async fn create_with(
        &self,
        spec: ScopeSpec,
        wants: Vec<StartResource>,
        how: CloseLimits,
    ) -> Result<Result<Arc<Scope>, StartFailed>, Error> {
        let scope = self.create(spec)?;
        // The caller may disconnect during the start.
        let guard = self.guard(&scope);
        let taken = scope.take_all(wants, how).await;
        guard.keep();
        Ok(taken.map(|()| scope))
    }

    /// Closes the scope when the guard is dropped: for an owner that may panic, be cancelled, or
    /// lose its connection.
    #[must_use]
    pub fn guard(&self, scope: &Arc<Scope>) -> ScopeGuard {
        ScopeGuard {
            scope: Some(Arc::clone(scope)),
        }
    }

    /// The scope with this id.
    pub fn get(&self, id: &str) -> Result<Arc<Scope>, Error> {
        self.forget_old();
        let table = self.table();
        let found = table.scopes.get(id).map(|kept| Arc::clone(&kept.scope));
        found.ok_or_else(|| Error::Unknown {
            what: "scope",
            id: id.to_owned(),
        })
    }

    /// All of them, those that were closed lately too.
    #[must_use]
    pub fn list(&self) -> Vec<ScopeView> {
        self.forget_old();
        self.all().iter().map(|scope| scope.view()).collect()
    }

    /// Closes one. A caller that is known and is a process of the scope gets its answer first, and
    /// the scope is closed `soon` after it.
    pub async fn close(
        &self,
        id: &str,
        how: CloseLimits,
        callers: &[u32],
        soon: Duration,
    ) -> Result<CloseAnswer, Error> {
        let scope = self.get(id)?;
        if let Some(result) = scope.result() {
            return Ok(CloseAnswer::Done(result));
        }
        let (asked, callers) = (Arc::clone(&scope), callers.to_owned());
        let look = move || callers.iter().any(|pid| asked.is_inside(*pid));
        // If the check fails, the delayed answer is the safe one.
        let is_inside = tokio::task::spawn_blocking(look).await.unwrap_or(true);
        if is_inside {
            return scope.close_soon(soon, how).map(CloseAnswer::Soon);
        }
        Ok(CloseAnswer::Done(
            scope.close(CloseReason::Asked, how).await,
        ))
    }

    /// State of a ticket.
    pub fn ticket(&self, ticket: &str) -> Result<CloseTicket, Error> {
        self.forget_old();
        let has_it = |scope: &Arc<Scope>| {
            let accepted = scope.state().ticket.clone();
            accepted.is_some_and(|accepted| accepted.ticket == ticket)
        };
        let found = self.all().into_iter().find(has_it);
        let said = found.and_then(|scope| scope.ticket());
        said.ok_or_else(|| Error::Unknown {
            what: "ticket",
            id: ticket.to_owned(),
        })
    }

    /// Closes all scopes of a client.
    pub async fn close_client(&self, client: &str, how: CloseLimits) -> Vec<Arc<CleanUp>> {
        let is_its = |scope: &Arc<Scope>| scope.client() == Some(client);
        self.close_those(is_its, CloseReason::ClientGone, how).await
    }

    /// Accepts no new scopes, and closes all.
    pub async fn shut_down(&self, how: CloseLimits) -> Vec<Arc<CleanUp>> {
        self.table().is_closing = true;
        self.close_those(|_| true, CloseReason::Shutdown, how).await
    }

    /// Closes those that were still open, in the order of their ids.
    async fn close_those(
        &self,
        which: impl Fn(&Arc<Scope>) -> bool,
        why: CloseReason,
        how: CloseLimits,
    ) -> Vec<Arc<CleanUp>> {
        let scopes = self.all().into_iter();
        let scopes = scopes.filter(|scope| which(scope) && scope.result().is_none());
        let ends = scopes.map(|scope| async move { scope.close(why, how).await });
        join_all(ends).await
    }

    /// Those that are there.
    pub(super) fn all(&self) -> Vec<Arc<Scope>> {
        let table = self.table();
        let scopes = table.scopes.values();
        scopes.map(|kept| Arc::clone(&kept.scope)).collect()
    }

    pub(super) fn means(&self) -> &Arc<ScopeContext> {
        &self.shared.means
    }

    /// Forgets scopes that were closed too long ago.
    pub(super) fn forget_old(&self) {
        let now = Instant::now();
        let mut table = self.table();
        let mut closed = Vec::new();
        for (id, kept) in &mut table.scopes {
            if kept.scope.result().is_some() {
                let since = *kept.closed.get_or_insert(now);
                closed.push((since, id.clone()));
            }
        }
        closed.sort_unstable();
        let too_many = closed.len().saturating_sub(MOST_KEPT);
        let is_old = |since: Instant| now.duration_since(since) >= self.shared.kept_for;
        let old = closed.into_iter().enumerate();
        let old = old.filter(|(at, (since, _))| *at < too_many || is_old(*since));
        let gone: Vec<Option<KeptCleanUps>> =
            old.map(|(_, (_, id))| table.scopes.remove(&id)).collect();
        drop(table);
        drop(gone);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        let table = self.shared.table.lock();
        table.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a scope when it is dropped.
#[derive(Debug)]
pub struct ScopeGuard {
    scope: Option<Arc<Scope>>,
}

impl ScopeGuard {
    /// Keeps the scope open.
    pub fn keep(mut self) {
        self.scope = None;
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if let Some(scope) = self.scope.take() {
            scope.begin_close(CloseReason::OwnerGone, CloseLimits::default());
        }
    }
}
