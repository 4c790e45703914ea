//! A trace as a web page. Its script sorts the table and zooms the flame graph.

mod before;
mod why;

use std::cmp::Reverse;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::hazard::Hazard;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Frame, Origin};
use fdguard_core::units;
use fdguard_diagnose::trace::{ProcessSites, TraceReport};
use fdguard_trace::{ProcessWhy, Site};

use super::{PageFrame, STYLE, escape, plots};
use crate::report::diagnosis;
use crate::report::document::{
    Block, Document, Note, NotePart, ReportHeadline, ReportTable, Section, ShownStack, TableCell,
};
use crate::report::table::Side::{self, Left, Right};
use crate::report::table::{class_name, counted, thousands};
use crate::report::trace::tree::StackNode;
use crate::report::trace::{hazard, name, svg};
use crate::terminal::{sanitize, sanitize_str};

const OWN_STYLE: &str = include_str!("trace.css");
const SORT: &str = include_str!("sort.js");
/// How many sites of one process are listed: the others have few descriptors each.
const MOST_SITES: usize = 500;
const MOST_HAZARDS: usize = 200;
/// How many processes are drawn; the others are in the tables.
const MOST_PLOTS: usize = 8;

/// The page. Only scripts with this `nonce` run in it.
#[must_use]
pub fn page(report: &TraceReport, whys: &[ProcessWhy], tree: &StackNode, nonce: &str) -> String {
    let nonce = escape(nonce);
    let frame = PageFrame {
        command: "fdguard trace",
        subject: &sanitize(&report.diagnosis.process.comm),
        version: env!("CARGO_PKG_VERSION"),
        policy: &format!("; script-src 'nonce-{nonce}'"),
        style: &[STYLE, OWN_STYLE, svg::STYLE].concat(),
        script: &format!(
            "<script nonce=\"{nonce}\">\n{SORT}{}</script>\n",
            svg::SCRIPT
        ),
    };
    frame.page(&document(report, whys, tree))
}

fn document(report: &TraceReport, whys: &[ProcessWhy], tree: &StackNode) -> Document {
    let found = &report.diagnosis;
    let words = found.process.cmdline.iter().map(sanitize);
    let title = match words.collect::<Vec<_>>().join(" ") {
        line if line.is_empty() => sanitize(&found.process.comm),
        line => line,
    };
    let findings = found.findings.iter().map(finding).collect();
    let flames = (tree.live > 0).then(|| Block::Picture(svg::figure(tree)));
    let flames = flames.into_iter().collect();
    let mut sections: Vec<Section> = [
        hazards(found),
        Section::of("findings", findings),
        Some(sites(report)),
        Section::of("flame graph of open descriptors", flames),
    ]
    .into_iter()
    .flatten()
    .collect();
    sections.extend(why::section(whys));
    sections.extend(timelines(report));
    let before = found.opened_before_attach.as_deref();
    sections.extend(before::section(before.unwrap_or_default()));
    sections.extend(Section::gaps(&found.gaps));
    let length = found.ended_at.duration_since(found.started_at);
    Document {
        title,
        headline: headline(report),
        about: format!(
            "{} in {}, from {}",
            counted(found.samples, "sample"),
            units::duration(length.as_secs_f64()),
            found.started_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        ),
        sections,
    }
}

fn headline(report: &TraceReport) -> ReportHeadline {
    let found = &report.diagnosis;
    let hazards = found.hazards.iter().filter(|one| one.cleared.is_none());
    let findings = found.findings.iter().filter(|one| one.cleared.is_none());
    let severities = hazards.map(|one| one.severity);
    let severities = severities.chain(findings.map(|one| one.severity));
    ReportHeadline {
        severity: severities.max().filter(|one| *one > Severity::Info),
        word: diagnosis::word(found.verdict),
        text: sentence(report),
    }
}

/// The most important result, in one line.
fn sentence(report: &TraceReport) -> String {
    let found = &report.diagnosis;
    let mut parts = Vec::new();
    let hazards = found.hazards.iter().filter(|one| one.cleared.is_none());
    let hazards = hazards.map(|one| one.count).sum();
    if hazards > 0 {
        parts.push(counted(hazards, "descriptor misuse"));
    }
    parts.push(match (found.baseline, found.last) {
        (Some(first), Some(last)) if first == last => counted(last, "descriptor"),
        (Some(first), Some(last)) => {
            format!("{} → {} descriptors", thousands(first), thousands(last))
        }
        _ if found.verdict == Verdict::Unknown => "it exited before the first sample".to_owned(),
        _ => "an unknown number of descriptors".to_owned(),
    });
    let sites = report.processes.iter().flat_map(|process| &process.sites);
    // Of equal ones the first.
    if let Some(site) = sites.min_by_key(|site| Reverse(site.open.len())) {
        let live = thousands(site.open.len() as u64);
        parts.push(format!(
            "{live} still open from {}",
            name::place(site.culprit.as_ref())
        ));
    }
    parts.join("; ")
}

fn hazards(found: &Diagnosis) -> Option<Section> {
    let shown = found.hazards.iter().take(MOST_HAZARDS);
    let notes = shown.map(|one| Block::Note(hazard_note(found, one)));
    let more = left(found.hazards.len(), MOST_HAZARDS, "hazards");
    Section::of("hazards", notes.chain(more).collect())
}

fn hazard_note(found: &Diagnosis, one: &Hazard) -> Note {
    let comm = hazard::comm(found, one.pid);
    let blamed = hazard::blamed(one).map(|(title, party)| (title, std::ptr::from_ref(party)));
    let parties = hazard::parties(one).into_iter().map(|(what, party)| {
        let fault = blamed.filter(|(_, blamed)| *blamed == std::ptr::from_ref(party));
        let stack = ShownStack {
            is_at_fault: fault.is_some_and(|(title, _)| title.ends_with("at fault")),
            is_open: fault.is_some(),
            ..shown_stack(hazard::who(party), &party.stack)
        };
        NotePart::Call(what, stack)
    });
    let message = sanitize_str(&one.message).into_owned();
    let holders = one.holders.iter().map(|holder| origin("held:", holder));
    let fix = hazard::fix(one).map(|fix| NotePart::Labelled("fix", fix.to_owned()));
    Note {
        severity: Some(one.severity),
        text: hazard::subject(one, comm.as_deref()),
        rule: Some(sanitize_str(&one.rule).into_owned()),
        more: std::iter::once(NotePart::Sentence(message))
            .chain(parties)
            .chain(holders)
            .chain(fix)
            .collect(),
    }
}

fn finding(one: &Finding) -> Block {
    let what = match (&one.class, &one.target) {
        (Some(class), Some(target)) => format!("{}  {}", class_name(class), sanitize(target)),
        (Some(class), None) => class_name(class),
        (None, _) => "descriptors".to_owned(),
    };
    let why = NotePart::Sentence(sanitize_str(&one.why).into_owned());
    let opened = one.origin.as_ref().map(|found| origin("opened by", found));
    let labelled = |label, text: &str| NotePart::Labelled(label, sanitize_str(text).into_owned());
    let next = match &one.cleared {
        Some(note) => Some(labelled(
            "cleared",
            &format!("on {}: {}", note.date, note.reason),
        )),
        None => Some(labelled("next", &one.next_step)).filter(|_| !one.next_step.is_empty()),
    };
    Block::Note(Note {
        severity: Some(one.severity),
        text: format!("{what} in {} (pid {})", sanitize(&one.comm), one.pid),
        rule: Some(sanitize_str(&one.rule).into_owned()),
        more: std::iter::once(why).chain(opened).chain(next).collect(),
    })
}

/// `opened by main.c:23 begin: 312 live of 320`, with its stack.
fn origin(label: &'static str, origin: &Origin) -> NotePart {
    let place = name::place(origin.culprit.as_ref());
    let (live, opened) = (thousands(origin.live), thousands(origin.opened));
    let stack = ShownStack {
        is_open: true,
        ..shown_stack(format!("{place}: {live} live of {opened}"), &origin.stack)
    };
    NotePart::Call(label, stack)
}

fn shown_stack(text: String, stack: &[Frame]) -> ShownStack {
    let file = |frame: &Frame| frame.file.as_ref().or(frame.module.as_ref()).map(sanitize);
    let frames = stack.iter();
    let frames = frames.map(|frame| (name::line(frame), file(frame).unwrap_or_default()));
    ShownStack {
        text,
        frames: frames.collect(),
        ..ShownStack::default()
    }
}

fn left(all: usize, shown: usize, what: &str) -> Option<Block> {
    let more = all.saturating_sub(shown) as u64;
    (more > 0).then(|| Block::Remark(format!("and {} more {what}", thousands(more))))
}

fn sites(report: &TraceReport) -> Section {
    const COLUMNS: &[(&str, Side)] = &[
        ("line", Left),
        ("live", Right),
        ("opened", Right),
        ("closed", Right),
        ("per second", Right),
        ("oldest", Right),
        ("class", Left),
        ("target", Left),
        ("process", Left),
    ];
    let processes = || report.processes.iter().filter(|one| !one.sites.is_empty());
    let is_several = processes().count() > 1;
    let rows = processes().flat_map(|process| {
        let sites = process.sites.iter().take(MOST_SITES);
        sites.map(move |site| row(process, site))
    });
    let table = Block::Table(ReportTable {
        // The process comes last.
        columns: &COLUMNS[..COLUMNS.len() - usize::from(!is_several)],
        rows: rows.collect(),
    });
    let more = processes().filter_map(|process| {
        let what = format!("sites of {}", sanitize_str(&process.comm));
        left(process.sites.len(), MOST_SITES, &what)
    });
    let blocks = match processes().next() {
        Some(_) => std::iter::once(table).chain(more).collect(),
        None => vec![Block::Sentence(
            "No traced descriptor is still open.".to_owned(),
        )],
    };
    Section {
        title: "call sites of open descriptors".to_owned(),
        blocks,
    }
}

fn row(process: &ProcessSites, site: &Site) -> Vec<TableCell> {
    let line = name::place(site.culprit.as_ref());
    let hint = site.oldest().map_or_else(String::new, |oldest| {
        let (call, thread) = (oldest.descriptor.call, oldest.descriptor.tid);
        format!("{}, thread {thread}", call.name())
    });
    let stack = ShownStack {
        hint: Some(hint),
        ..shown_stack(line.clone(), &site.stack)
    };
    let unknown = || "–".to_owned();
    let number = |value: String, text: String| TableCell {
        text,
        value: Some(value),
        stack: None,
    };
    let count = |count: u64| number(count.to_string(), thousands(count));
    // Unknown values sort below everything.
    let measure = |value: Option<f64>, text: fn(f64) -> String| {
        let sort = value.unwrap_or(-1.0).to_string();
        number(sort, value.map_or_else(unknown, text))
    };
    let (class, target) = process.class_and_target(site).unzip();
    vec![
        TableCell {
            text: line.clone(),
            value: Some(line),
            stack: Some(stack),
        },
        count(site.open.len() as u64),
        count(site.opened),
        count(site.closed),
        measure(site.per_second(), |rate| format!("+{rate:.1}")),
        measure(site.oldest_age(process.now), units::duration),
        class.map_or_else(unknown, class_name).into(),
        target.flatten().map_or_else(unknown, sanitize).into(),
        format!("{} ({})", sanitize_str(&process.comm), process.pid).into(),
    ]
}

fn timelines(report: &TraceReport) -> impl Iterator<Item = Section> {
    let is_several = report.processes.len() > 1;
    let drawn = report.processes.iter();
    let drawn = drawn.filter_map(|one| Some((one, one.curves.as_ref()?)));
    drawn.take(MOST_PLOTS).filter_map(move |(process, curves)| {
        let of =
            is_several.then(|| format!("{} (pid {})", sanitize_str(&process.comm), process.pid));
        plots(&report.diagnosis, process.pid, curves, of)
    })
}

#[cfg(test)]
mod tests;
