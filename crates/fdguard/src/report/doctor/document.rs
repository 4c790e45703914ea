//! The `fdguard.diagnosis/1` document with the doctor's additions.

use std::io::Write;
use std::path::Path;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::document::HeldFields;
use fdguard_core::evidence::{
    Curves, Database, Evidence, ExaminedProcess, LogFile, Machine, ProcessVisit, Relative,
    RuntimeInfo,
};
use fdguard_core::lint::{LintHit, Severity};
use fdguard_core::select_use::SelectUse;
use fdguard_core::{Fd, Pid, Tier};
use serde::Serialize;

/// How many targets the document has; all of them are in the snapshots.
const TARGETS: usize = 20;

/// A diagnosis with additional members.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    headline: String,
    snapshot: Option<HeldDocument<'a>>,
    lints: Vec<Lint<'a>>,
    evidence: Gathered<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a serde_json::Value>,
}

#[derive(Serialize)]
struct HeldDocument<'a> {
    pid: Pid,
    tier: Tier,
    #[serde(flatten)]
    held: HeldFields<'a>,
}

#[derive(Serialize)]
struct Lint<'a> {
    pid: Pid,
    rule: &'a str,
    severity: Severity,
    message: &'a str,
    fds: &'a [Fd],
    fix: &'a str,
}

#[derive(Serialize)]
struct Gathered<'a> {
    redacted: bool,
    machine: &'a Machine,
    processes: Vec<Patient<'a>>,
    family: &'a [Relative],
    family_more: u64,
    logs: &'a [LogFile],
    bundle: Option<String>,
}

#[derive(Serialize)]
struct Patient<'a> {
    snapshot: HeldDocument<'a>,
    uptime_seconds: Option<u64>,
    runtime: Option<&'a RuntimeInfo>,
    select: Option<&'a SelectUse>,
    databases: &'a [Database],
    curves: Option<&'a Curves>,
}

/// Writes the document in one line.
pub fn write_document(
    out: &mut dyn Write,
    evidence: &Evidence,
    bundle: Option<&Path>,
) -> anyhow::Result<()> {
    let mut diagnosis = evidence.diagnosis.clone();
    // All gaps, not only those of the watch.
    diagnosis.gaps.clone_from(&evidence.gaps);
    let headline = super::headline(evidence);
    let document = Document {
        diagnosis: &diagnosis,
        headline: format!("{}: {}", headline.word, headline.text),
        snapshot: evidence
            .patients()
            .next()
            .map(|(visit, examined)| held(visit, examined)),
        lints: evidence
            .patients()
            .flat_map(|(visit, examined)| lints(visit, examined))
            .collect(),
        evidence: Gathered {
            redacted: evidence.redacted,
            machine: &evidence.material.machine,
            processes: evidence
                .patients()
                .map(|(visit, examined)| patient(visit, examined))
                .collect(),
            family: &evidence.material.relatives,
            family_more: evidence.material.relatives_more,
            logs: &evidence.material.logs,
            bundle: bundle.map(|path| path.display().to_string()),
        },
        why: evidence.holders.as_ref().map(|holders| &holders.processes),
    };
    crate::report::json::write_line(out, &document)
}

/// The document of a bundle, without the path of the bundle.
pub fn bundled_document(evidence: &Evidence) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    write_document(&mut text, evidence, None)?;
    Ok(text)
}

fn held<'a>(visit: &'a ProcessVisit, examined: &'a ExaminedProcess) -> HeldDocument<'a> {
    let latest = visit.latest();
    HeldDocument {
        pid: latest.process.pid,
        tier: latest.tier,
        held: HeldFields::new(latest, &examined.latest).with_targets(TARGETS),
    }
}

fn lints<'a>(
    visit: &'a ProcessVisit,
    examined: &'a ExaminedProcess,
) -> impl Iterator<Item = Lint<'a>> {
    examined.latest.lints.iter().map(|hit: &LintHit| Lint {
        pid: visit.begin.process.pid,
        rule: hit.rule,
        severity: hit.severity,
        message: &hit.message,
        fds: &hit.fds,
        fix: hit.fix,
    })
}

fn patient<'a>(visit: &'a ProcessVisit, examined: &'a ExaminedProcess) -> Patient<'a> {
    Patient {
        snapshot: held(visit, examined),
        uptime_seconds: examined.uptime_seconds,
        runtime: visit.runtime.as_ref(),
        select: visit.select.as_ref(),
        databases: &examined.databases,
        curves: examined.curves.as_ref(),
    }
}
