//! The content of the doctor's report.

mod around;
mod fold;
mod one;
#[cfg(feature = "trace")]
mod trace;

use fdguard_core::evidence::Evidence;
use fdguard_core::finding::Finding;
use fdguard_core::units;

pub(super) use one::suspects;
pub(in crate::report) use one::within;

use super::verdict;
use crate::report::document::{self, Block, Document, Section};
use crate::report::html;
use crate::report::table::counted;
use crate::terminal::{sanitize, sanitize_str};

/// How many processes are drawn; the others are in the tables.
const MOST_PLOTS: usize = 8;

/// Orders the evidence.
#[must_use]
pub fn outline(evidence: &Evidence) -> Document {
    let diagnosis = &evidence.diagnosis;
    let many = evidence.material.visits.len() > 1;
    let patients: Vec<_> = evidence.patients().collect();
    let groups = fold::groups(evidence);
    let mut sections: Vec<Section> = found(&diagnosis.findings, many).into_iter().collect();
    #[cfg(feature = "trace")]
    sections.extend(trace::sections(diagnosis));
    #[cfg(feature = "trace")]
    sections.extend(evidence.holders.as_ref().and_then(trace::holders));
    sections.extend(one::lints(evidence, "problems", true));
    // Draw one of each group of similar processes.
    for group in groups.iter().take(MOST_PLOTS) {
        let first = group.members.first().and_then(|index| patients.get(*index));
        sections.extend(first.and_then(|(visit, examined)| {
            let process = &visit.begin.process;
            let of = many.then(|| format!("{} (pid {})", sanitize(&process.comm), process.pid));
            html::plots(diagnosis, process.pid, examined.curves.as_ref()?, of)
        }));
    }
    for group in groups {
        match group.members.as_slice() {
            [index] => {
                let patient = patients.get(*index);
                sections.extend(
                    patient
                        .into_iter()
                        .flat_map(|(visit, examined)| one::of_one(evidence, visit, examined, many)),
                );
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
    sections.extend(Section::gaps(&evidence.gaps));
    sections.push(around::versions(evidence));
    Document {
        title: title(evidence),
        headline: verdict::headline(evidence),
        about: about(evidence),
        sections,
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
        let text = format!("{subject}{}", sanitize_str(&finding.why));
        Block::note(Some(finding.severity), text, Some(&finding.rule), more)
    });
    Section::of("findings", notes.collect())
}

/// The parts of the advice, with the likely source apart from what to do next.
fn steps(next_step: &str) -> Vec<(&'static str, String)> {
    let [(next, lead), rest @ ..] = document::steps(next_step);
    let (lead, source) = lead.split_once("Likely source: ").unwrap_or((lead, ""));
    let steps = [(next, lead), ("likely", source)].into_iter().chain(rest);
    let trimmed = steps.map(|(label, text)| (label, text.trim().trim_end_matches('.')));
    let told = trimmed.filter(|(_, text)| !text.is_empty());
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
