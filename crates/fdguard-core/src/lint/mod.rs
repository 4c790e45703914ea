//! Lints: what looks wrong in a single snapshot, without watching or tracing.
//!
//! To add one: a file beside this one with a `LINT` constant, one line in [`LINTS`], one page
//! under `docs/guide/rules/`.

use serde::{Deserialize, Serialize};

use crate::{Fd, Snapshot};

mod close_wait_pile;

/// How much a lint matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Will hurt some day.
    Warning,
    /// Hurts now.
    Critical,
}

/// One rule over a snapshot.
#[derive(Debug)]
pub struct Lint {
    /// Name in JSON, on the command line and of its page in the guide.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// One line: what it looks for.
    pub summary: &'static str,
    /// Weakness class, where one fits.
    pub cwe: Option<u16>,
    /// The requirement it answers.
    pub requirement: &'static str,
    /// What to do about it.
    pub fix: &'static str,
    /// Finds the descriptors, each group with its sentence. Silence where evidence is missing.
    pub check: fn(&Snapshot) -> Vec<Suspicion>,
}

/// What a check found: a full sentence and the descriptors it speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// The sentence.
    pub message: String,
    /// The descriptors.
    pub fds: Vec<Fd>,
}

/// A suspicion with the rule that raised it, as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LintHit {
    /// The rule's id.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub message: String,
    /// The descriptors.
    pub fds: Vec<Fd>,
    /// What to do about it.
    pub fix: &'static str,
}

/// Every lint: the one table that `--list-rules`, JSON and the guide read.
pub const LINTS: &[Lint] = &[close_wait_pile::LINT];

/// Runs every lint, the gravest first. Without a list of descriptors there is nothing to judge.
#[must_use]
pub fn check(snapshot: &Snapshot) -> Vec<LintHit> {
    let mut hits: Vec<LintHit> = LINTS
        .iter()
        .flat_map(|lint| {
            (lint.check)(snapshot).into_iter().map(|found| LintHit {
                rule: lint.id,
                severity: lint.severity,
                message: found.message,
                fds: found.fds,
                fix: lint.fix,
            })
        })
        .collect();
    hits.sort_by_key(|hit| std::cmp::Reverse(hit.severity));
    hits
}
