//! One scan over all scopes: observe, judge, act.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::task::JoinError;

use super::judge::{AgentStatus, ReasonCode, due, unhealthy, verdict};
use super::look::{self, ObservedScope};
use super::step::{Blocking, DaemonStep, limited};
use super::{Options, marker};
use crate::scope::{CloseReason, Scope, ScopeObserver, Scopes};

/// Purpose of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScanKind {
    /// Check the status of agents.
    Health,
    /// Clean up after agents that have ended.
    CleanUp,
}

/// Result of a scan.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ScopeScan {
    /// `fdguard.scan/1`.
    pub schema: &'static str,
    /// Purpose of the scan.
    pub kind: ScanKind,
    /// End time, RFC 3339.
    pub at: String,
    /// Number of open scopes examined.
    pub scopes: usize,
    /// Steps in order.
    pub steps: Vec<DaemonStep>,
    /// Agents whose status changed.
    pub verdicts: Vec<AgentVerdict>,
    /// Scopes that were cleaned up.
    pub cleaned: Vec<CleanedScope>,
    /// Other errors.
    pub errors: Vec<String>,
}

/// An agent whose status changed.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AgentVerdict {
    /// Scope id.
    pub scope: String,
    /// New status.
    pub status: AgentStatus,
    /// Why.
    pub reasons: Vec<ReasonCode>,
}

/// A scope that was cleaned up.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CleanedScope {
    /// Scope id.
    pub scope: String,
    /// Why.
    pub reason: CloseReason,
    /// `success` of its cleanup.
    pub success: bool,
}

impl ScopeScan {
    fn new(kind: ScanKind) -> Self {
        Self {
            schema: "fdguard.scan/1",
            kind,
            at: Timestamp::now().to_string(),
            scopes: 0,
            steps: Vec::new(),
            verdicts: Vec::new(),
            cleaned: Vec::new(),
            errors: Vec::new(),
        }
    }

    pub(super) fn broken(kind: ScanKind, error: &JoinError) -> Self {
        let mut scan = Self::new(kind);
        scan.errors.push(format!("scan failed: {error}"));
        scan
    }
}

#[derive(Debug)]
pub(super) struct Scanner {
    scopes: Scopes,
    options: Options,
    look: Blocking,
    files: Blocking,
    read: Blocking,
}

impl Scanner {
    pub(super) fn new(scopes: Scopes, options: Options) -> Self {
        Self {
            scopes,
            options,
            look: Blocking::default(),
            files: Blocking::default(),
            read: Blocking::default(),
        }
    }

    /// Of health and of clean-up.
    pub(super) fn intervals(&self) -> (Duration, Duration) {
        (self.options.health_every, self.options.clean_every)
    }

    pub(super) fn observer(&self) -> &ScopeObserver {
        &self.scopes.means().observer
    }

    pub(super) async fn scan(&self, kind: ScanKind) -> ScopeScan {
        let mut scan = ScopeScan::new(kind);
        self.scopes.forget_old();
        let looked = self.looked(&mut scan).await;
        match kind {
            ScanKind::Health => self.judge(looked, &mut scan).await,
            ScanKind::CleanUp => self.clean(looked, &mut scan).await,
        }
        scan.at = Timestamp::now().to_string();
        scan
    }

    /// The observed state of all open scopes; empty if a step failed: what was not seen is not
    /// judged.
    async fn looked(&self, scan: &mut ScopeScan) -> Vec<ObservedScope> {
        let scopes = self.scopes.all();
        let limits = self.options.limits;
        let look =
            move || -> Vec<ObservedScope> { scopes.iter().filter_map(look::processes).collect() };
        let (step, looked) = self.look.run("look", limits.look, look).await;
        scan.steps.push(step);
        let Some(mut looked) = looked else {
            return Vec::new();
        };
        scan.scopes = looked.len();
        let files = move || {
            let now = SystemTime::now();
            for looked in &mut looked {
                look::files(looked, now);
            }
            looked
        };
        let (step, looked) = self.files.run("files", limits.files, files).await;
        scan.steps.push(step);
        looked.unwrap_or_default()
    }

    async fn judge(&self, looked: Vec<ObservedScope>, scan: &mut ScopeScan) {
        let rules = self.options.rules;
        let with_reasons = looked
            .into_iter()
            .map(|it| (unhealthy(&it.seen, rules), it));
        let suspects: Vec<_> = with_reasons.filter(|(it, _)| !it.is_empty()).collect();
        if suspects.is_empty() {
            return;
        }
        let read = move || {
            let last =
                |looked: &ObservedScope| marker::of_all(looked.scope.root(), &looked.outputs);
            let suspects = suspects.into_iter();
            suspects
                .map(|(reasons, looked)| (last(&looked), reasons, looked))
                .collect::<Vec<_>>()
        };
        let (step, read) = self.read.run("read", self.options.limits.read, read).await;
        scan.steps.push(step);
        for (last, reasons, looked) in read.unwrap_or_default() {
            let Some((status, reasons)) = verdict(&looked.seen, &reasons, last) else {
                continue;
            };
            // Its client may have set a status meanwhile: that stays.
            if looked.scope.judge(status, reasons.clone()) {
                scan.verdicts.push(AgentVerdict {
                    scope: looked.scope.id().to_owned(),
                    status,
                    reasons,
                });
            }
        }
    }

    async fn clean(&self, looked: Vec<ObservedScope>, scan: &mut ScopeScan) {
        let rules = self.options.rules;
        let due = looked
            .into_iter()
            .filter_map(|it| Some((due(&it.seen, rules)?, it.scope)));
        let due: Vec<(CloseReason, Arc<Scope>)> = due.collect();
        if due.is_empty() {
            return;
        }
        for (why, scope) in &due {
            scope.begin_close(*why, self.options.how);
        }
        let ends = due.iter().map(|(_, scope)| scope.closed());
        let ends = async { Ok(join_all(ends).await) };
        // A close that takes longer continues; the next scan does not start it again.
        let (step, _) = limited("close", self.options.limits.files, ends).await;
        scan.steps.push(step);
        let done = due.iter().filter_map(|(_, scope)| scope.result());
        scan.cleaned.extend(done.map(|clean_up| CleanedScope {
            scope: clean_up.scope.clone(),
            reason: clean_up.reason,
            success: clean_up.success,
        }));
    }
}
