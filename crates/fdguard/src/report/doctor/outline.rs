//! The content of the report, independent of its form: text and web page share it.
//!
//! Every string here is safe to show: foreign names went through [`crate::terminal::sanitize`].

mod around;
mod fold;
mod one;

use fdguard_core::evidence::Evidence;
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::units;

pub(in crate::report) use fold::groups;
pub(super) use one::suspects;
pub(in crate::report) use one::within;

use super::verdict::{self, DoctorHeadline};
use crate::report::table::{Side, counted};
use crate::terminal::{sanitize, sanitize_str};

/// The report.
#[derive(Clone, Debug, PartialEq)]
pub struct Outline {
    /// The process.
    pub title: String,
    /// The first sentence.
    pub headline: DoctorHeadline,
    /// How the data was collected.
    pub about: String,
    /// The findings, before everything else.
    pub findings: Vec<Section>,
    /// The rest.
    pub sections: Vec<Section>,
}

/// A part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Its content.
    pub blocks: Vec<Block>,
}

/// A piece of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A plain sentence.
    Sentence(String),
    /// A finding.
    Note(Note),
    /// Rows.
    Table(OutlineTable),
}

/// A finding, its meaning and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its severity, if it has one.
    pub severity: Option<Severity>,
    /// What it is.
    pub text: String,
    /// The rule that found it.
    pub rule: Option<String>,
    /// More texts, each with its label.
    pub more: Vec<(&'static str, String)>,
}

/// Rows with column names.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlineTable {
    /// The columns; names may be empty if the rows explain themselves.
    pub columns: Vec<(&'static str, Side)>,
    /// The cells.
    pub rows: Vec<Vec<String>>,
    /// What was left out.
    pub more: Option<String>,
}

impl Outline {
    /// Orders the evidence.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Self {
        let diagnosis = &evidence.diagnosis;
        let many = evidence.material.visits.len() > 1;
        let mut findings: Vec<Section> = found(&diagnosis.findings, many).into_iter().collect();
        findings.extend(one::lints(evidence, "problems", true));
        let mut sections = Vec::new();
        let patients: Vec<_> = evidence.patients().collect();
        for group in groups(evidence) {
            match group.members.as_slice() {
                [index] => {
                    let patient = patients.get(*index);
                    sections.extend(patient.into_iter().flat_map(|(visit, examined)| {
                        one::of_one(evidence, visit, examined, many)
                    }));
                }
                _ => sections.push(fold::section(evidence, &group)),
            }
        }
        sections.extend(one::lints(evidence, "notes", false));
        sections.extend(around::family(
            &evidence.material.relatives,
            evidence.material.relatives_more,
        ));
        sections.extend(around::logs(evidence));
        sections.extend(around::gaps(&evidence.gaps));
        sections.push(around::versions(evidence));
        Self {
            title: title(evidence),
            headline: verdict::headline(evidence),
            about: about(evidence),
            findings,
            sections,
        }
    }
}

fn title(evidence: &Evidence) -> String {
    // Use its latest name: it may have executed another program meanwhile.
    let visit = evidence.material.visits.first();
    let process = visit.map_or(&evidence.diagnosis.process, |visit| &visit.latest().process);
    let others = evidence.material.visits.len().saturating_sub(1) as u64;
    let others = match others {
        0 => String::new(),
        _ => format!(" and {}", counted(others, "other process")),
    };
    format!("{} (pid {}){others}", sanitize(&process.comm), process.pid)
}

fn about(evidence: &Evidence) -> String {
    let diagnosis = &evidence.diagnosis;
    let watched = diagnosis
        .processes
        .first()
        .map_or(0.0, |one| one.watched_seconds);
    let redacted = if evidence.redacted {
        ", names redacted"
    } else {
        ""
    };
    format!(
        "watched for {}, {}, from {}{redacted}",
        units::duration(watched),
        counted(diagnosis.samples, "sample"),
        at_second(diagnosis.started_at),
    )
}

/// A time, rounded to the second.
pub(super) fn at_second(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn section(title: impl Into<String>, blocks: Vec<Block>) -> Option<Section> {
    (!blocks.is_empty()).then(|| Section {
        title: title.into(),
        blocks,
    })
}

fn found(findings: &[Finding], many: bool) -> Option<Section> {
    let notes = findings.iter().map(|finding| {
        let subject = match many {
            true => format!("{} (pid {}): ", sanitize(&finding.comm), finding.pid),
            false => String::new(),
        };
        let mut more = steps(&finding.next_step);
        if let Some(cleared) = &finding.cleared {
            let reason = sanitize_str(&cleared.reason);
            more.push(("cleared", format!("{reason} ({})", cleared.date)));
        }
        Block::Note(Note {
            severity: Some(finding.severity),
            text: format!("{subject}{}", sanitize_str(&finding.why)),
            rule: Some(finding.rule.clone()),
            more,
        })
    });
    section("findings", notes.collect())
}

/// Splits the advice of the playbook into its parts: source, confirmation, fix and line.
fn steps(next_step: &str) -> Vec<(&'static str, String)> {
    let (next_step, line) = next_step.split_once("Line: ").unwrap_or((next_step, ""));
    let (lead, rest) = next_step
        .split_once("Likely source: ")
        .unwrap_or((next_step, ""));
    let (source, rest) = rest.split_once(" Confirm: ").unwrap_or((rest, ""));
    let (confirm, fix) = rest.split_once(" Fix: ").unwrap_or((rest, ""));
    let steps = [
        ("next", lead),
        ("likely", source),
        ("confirm", confirm),
        ("fix", fix),
        ("line", line),
    ];
    let trimmed = steps.map(|(label, text)| (label, text.trim().trim_end_matches('.')));
    let told = trimmed.into_iter().filter(|(_, text)| !text.is_empty());
    told.map(|(label, text)| (label, sanitize_str(text).into_owned()))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "times for people")]
fn seconds_of(seconds: u64) -> f64 {
    seconds as f64
}

#[cfg(test)]
mod tests {
    use super::steps;

    #[test]
    fn advice_is_told_in_its_parts() {
        let told = steps(
            "Most are of class pipe. Likely source: a child. Confirm: count. Fix: close it. Line: `x`.",
        );
        let told: Vec<_> = told
            .iter()
            .map(|(label, text)| (*label, text.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("next", "Most are of class pipe"),
                ("likely", "a child"),
                ("confirm", "count"),
                ("fix", "close it"),
                ("line", "`x`")
            ]
        );
        assert_eq!(steps("look again"), [("next", "look again".to_owned())]);
        assert_eq!(steps(""), []);
    }
}
