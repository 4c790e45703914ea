//! A trace as a web page: one file, no external resources. Its script sorts the table and zooms the
//! flame graph; without the script all content is still there.

use std::fmt::Write as _;

use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis};
use fdguard_core::finding::Finding;
use fdguard_core::hazard::Hazard;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Frame, Origin};
use fdguard_core::units;
use fdguard_trace::Site;

use super::{Document, MOST_PLOTS, STYLE, escape, level, plot, word};
use crate::report::diagnosis;
use crate::report::table::{class_name, counted, thousands};
use crate::report::trace::{ProcessSites, TraceReport, hazard, name, svg};
use crate::terminal::{sanitize, sanitize_str};

const OWN_STYLE: &str = include_str!("trace.css");
const SORT: &str = include_str!("sort.js");
/// How many sites of one process are listed: the others have few descriptors each.
const MOST_SITES: usize = 500;
const MOST_HAZARDS: usize = 200;

/// The page. Only scripts with this `nonce` run in it.
#[must_use]
pub fn page(report: &TraceReport, nonce: &str) -> String {
    let found = &report.diagnosis;
    let words = found.process.cmdline.iter().map(sanitize);
    let title = match words.collect::<Vec<_>>().join(" ") {
        line if line.is_empty() => sanitize(&found.process.comm),
        line => line,
    };
    let mut body = header(report, &title);
    body.push_str("<main>\n");
    for part in [hazards(found), findings(found), sites(report)] {
        body.push_str(&part);
    }
    if report.call_paths().next().is_some() {
        let _infallible = write!(
            body,
            "<section>\n<h2>flame graph of open descriptors</h2>\n{}</section>\n",
            svg::figure(report)
        );
    }
    body.push_str(&timelines(report));
    body.push_str(&gaps(found));
    body.push_str("</main>\n");
    let nonce = escape(nonce);
    Document {
        title: format!(
            "{}: {}",
            diagnosis::word(found.verdict),
            escape(&sanitize(&found.process.comm))
        ),
        policy: &format!("; script-src 'nonce-{nonce}'"),
        style: &[STYLE, OWN_STYLE, svg::STYLE].concat(),
        body,
        footer: format!(
            "MadeReport by fdguard {}. This file is self-contained.",
            env!("CARGO_PKG_VERSION")
        ),
        script: format!(
            "<script nonce=\"{nonce}\">\n{SORT}{}</script>\n",
            svg::SCRIPT
        ),
    }
    .text()
}

fn header(report: &TraceReport, title: &str) -> String {
    let found = &report.diagnosis;
    let hazards = found.hazards.iter().filter(|one| one.cleared.is_none());
    let hazards = hazards.map(|one| one.severity);
    let counting = found.findings.iter().filter(|one| one.cleared.is_none());
    let findings = counting.map(|one| one.severity);
    let worst = hazards
        .chain(findings)
        .max()
        .filter(|one| *one > Severity::Info);
    let length = found.ended_at.duration_since(found.started_at);
    format!(
        "<header>\n<p class=\"kicker\">fdguard trace</p>\n<h1>{}</h1>\n\
         <p class=\"verdict {}\"><strong>{}</strong> {}</p>\n<p class=\"about\">{} in {}, from {}</p>\n</header>\n",
        escape(title),
        level(worst),
        diagnosis::word(found.verdict),
        escape(&sentence(report)),
        counted(found.samples, "sample"),
        units::duration(length.as_secs_f64()),
        found.started_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
    )
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
    if let Some(site) = sites.min_by_key(|site| std::cmp::Reverse(site.open.len())) {
        let live = thousands(site.open.len() as u64);
        parts.push(format!(
            "{live} still open from {}",
            name::place(site.culprit.as_ref())
        ));
    }
    parts.join("; ")
}

fn hazards(found: &Diagnosis) -> String {
    if found.hazards.is_empty() {
        return String::new();
    }
    let mut text = "<section>\n<h2>hazards</h2>\n".to_owned();
    for one in found.hazards.iter().take(MOST_HAZARDS) {
        text.push_str(&article(found, one));
    }
    text.push_str(&left(found.hazards.len(), MOST_HAZARDS, "hazards"));
    text.push_str("</section>\n");
    text
}

fn article(found: &Diagnosis, one: &Hazard) -> String {
    let comm = hazard::comm(found, one.pid);
    let mut text = format!(
        "<article class=\"note {}\">\n<p><strong>{}</strong> {} <code>{}</code></p>\n<p>{}</p>\n",
        level(Some(one.severity)),
        word(one.severity),
        escape(&hazard::subject(one, comm.as_deref())),
        escape(&sanitize_str(&one.rule)),
        escape(&sanitize_str(&one.message)),
    );
    let blamed = hazard::blamed(one).map(|(title, party)| (title, std::ptr::from_ref(party)));
    for (what, party) in hazard::parties(one) {
        let fault = blamed.filter(|(_, blamed)| *blamed == std::ptr::from_ref(party));
        let is_fault = fault.is_some_and(|(title, _)| title.ends_with("at fault"));
        let mark = if is_fault { " <em>at fault</em>" } else { "" };
        let summary = format!("<b>{what}</b> {}{mark}", escape(&hazard::who(party)));
        text.push_str(&details(&summary, &party.stack, fault.is_some()));
    }
    for holder in &one.holders {
        text.push_str(&origin("held:", holder));
    }
    if let Some(fix) = hazard::fix(one) {
        text.push_str(&more("fix", fix));
    }
    text.push_str("</article>\n");
    text
}

fn findings(found: &Diagnosis) -> String {
    if found.findings.is_empty() {
        return String::new();
    }
    let mut text = "<section>\n<h2>findings</h2>\n".to_owned();
    for one in &found.findings {
        text.push_str(&finding(one));
    }
    text.push_str("</section>\n");
    text
}

fn finding(one: &Finding) -> String {
    let what = match (&one.class, &one.target) {
        (Some(class), Some(target)) => format!("{}  {}", class_name(class), sanitize(target)),
        (Some(class), None) => class_name(class),
        (None, _) => "descriptors".to_owned(),
    };
    let mut text = format!(
        "<article class=\"note {}\">\n<p><strong>{}</strong> {} in {} (pid {}) <code>{}</code></p>\n<p>{}</p>\n",
        level(Some(one.severity)),
        word(one.severity),
        escape(&what),
        escape(&sanitize(&one.comm)),
        one.pid,
        escape(&sanitize_str(&one.rule)),
        escape(&sanitize_str(&one.why)),
    );
    if let Some(found) = &one.origin {
        text.push_str(&origin("opened by", found));
    }
    if let Some(cleared) = &one.cleared {
        let cleared = format!("on {}: {}", cleared.date, cleared.reason);
        text.push_str(&more("cleared", &sanitize_str(&cleared)));
    } else if !one.next_step.is_empty() {
        text.push_str(&more("next", &sanitize_str(&one.next_step)));
    }
    text.push_str("</article>\n");
    text
}

/// `opened by main.c:23 begin: 312 live of 320`, with its stack.
fn origin(label: &str, origin: &Origin) -> String {
    let place = name::place(origin.culprit.as_ref());
    let (live, opened) = (thousands(origin.live), thousands(origin.opened));
    let summary = format!("<b>{label}</b> {}: {live} live of {opened}", escape(&place));
    details(&summary, &origin.stack, true)
}

fn more(label: &str, text: &str) -> String {
    format!("<p class=\"more\"><b>{label}</b> {}</p>\n", escape(text))
}

/// A line that expands to its stack. The line is markup already.
fn details(summary: &str, stack: &[Frame], is_open: bool) -> String {
    if stack.is_empty() {
        return format!("<p class=\"more\">{summary}</p>\n");
    }
    let open = if is_open { " open" } else { "" };
    let mut text = format!("<details{open}><summary>{summary}</summary><ol class=\"stack\">");
    for frame in stack {
        let place = name::line(frame);
        let file = frame.file.as_ref().or(frame.module.as_ref()).map(sanitize);
        let _infallible = write!(
            text,
            "<li title=\"{}\">{}</li>",
            escape(&file.unwrap_or_default()),
            escape(&place)
        );
    }
    text.push_str("</ol></details>\n");
    text
}

fn left(all: usize, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => format!(
            "<p class=\"about\">and {} more {what}</p>\n",
            thousands(more as u64)
        ),
    }
}

fn sites(report: &TraceReport) -> String {
    const COLUMNS: [(&str, bool); 9] = [
        ("line", false),
        ("live", true),
        ("opened", true),
        ("closed", true),
        ("per second", true),
        ("oldest", true),
        ("class", false),
        ("target", false),
        ("process", false),
    ];
    let processes = || report.processes.iter().filter(|one| !one.sites.is_empty());
    let mut text = "<section>\n<h2>call sites of open descriptors</h2>\n".to_owned();
    if processes().next().is_none() {
        text.push_str("<p>No traced descriptor is still open.</p>\n</section>\n");
        return text;
    }
    text.push_str("<div class=\"wide\"><table class=\"sites\">\n<thead><tr>");
    let is_several = processes().count() > 1;
    let columns = COLUMNS.len() - usize::from(!is_several);
    for (name, is_number) in COLUMNS.into_iter().take(columns) {
        let class = if is_number { " class=\"n\"" } else { "" };
        let _infallible = write!(text, "<th scope=\"col\"{class}>{name}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for process in processes() {
        let name = format!("{} ({})", sanitize_str(&process.comm), process.pid);
        for site in process.sites.iter().take(MOST_SITES) {
            text.push_str(&row(process, site, is_several.then_some(&name)));
        }
    }
    text.push_str("</tbody></table></div>\n");
    for process in processes() {
        let what = format!("sites of {}", escape(&sanitize_str(&process.comm)));
        text.push_str(&left(process.sites.len(), MOST_SITES, &what));
    }
    text.push_str("</section>\n");
    text
}

fn row(process: &ProcessSites, site: &Site, process_name: Option<&str>) -> String {
    let line = escape(&name::place(site.culprit.as_ref())).into_owned();
    let call = site.oldest().map_or_else(String::new, |oldest| {
        let (call, thread) = (oldest.descriptor.call, oldest.descriptor.tid);
        format!("{}, thread {thread}", call.name())
    });
    let call = escape(&call).into_owned();
    let mut text = format!(
        "<tr><td data-v=\"{line}\">{}</td>",
        details(
            &format!("<span title=\"{call}\">{line}</span>"),
            &site.stack,
            false
        )
        .trim_end()
    );
    for count in [site.open.len() as u64, site.opened, site.closed] {
        let _infallible = write!(
            text,
            "<td class=\"n\" data-v=\"{count}\">{}</td>",
            thousands(count)
        );
    }
    let (rate, age) = (site.per_second(), site.oldest_age(process.now));
    let numbers = [
        (rate, rate.map(|rate| format!("+{rate:.1}"))),
        (age, age.map(units::duration)),
    ];
    for (number, shown) in numbers {
        // Unknown values sort below everything.
        let _infallible = write!(
            text,
            "<td class=\"n\" data-v=\"{}\">{}</td>",
            number.unwrap_or(-1.0),
            shown.unwrap_or_else(|| "–".to_owned())
        );
    }
    let (class, target) = process.class_and_target(site).unzip();
    let class = class.map_or_else(|| "–".to_owned(), class_name);
    let target = target.flatten().map_or_else(|| "–".to_owned(), sanitize);
    let _infallible = write!(
        text,
        "<td>{}</td><td class=\"wrap\">{}</td>",
        escape(&class),
        escape(&target)
    );
    if let Some(process) = process_name {
        let _infallible = write!(text, "<td>{}</td>", escape(process));
    }
    text.push_str("</tr>\n");
    text
}

fn timelines(report: &TraceReport) -> String {
    let mut text = String::new();
    let with = report
        .processes
        .iter()
        .filter_map(|one| Some((one, one.curves.as_ref()?)));
    for (process, curves) in with.take(MOST_PLOTS) {
        let opinions: &[ProcessDiagnosis] = &report.diagnosis.processes;
        let opinion = opinions.iter().find(|one| one.pid == process.pid);
        let limit = opinion.and_then(|one| one.walls.iter().find(|wall| wall.name == "soft-limit"));
        let of = match report.processes.len() {
            1 => String::new(),
            _ => format!(" of {} (pid {})", sanitize_str(&process.comm), process.pid),
        };
        let _infallible = write!(
            text,
            "<section class=\"plots\">\n<h2>descriptors over time{}</h2>\n{}{}</section>\n",
            escape(&of),
            plot::total(curves, limit),
            plot::families(curves),
        );
    }
    text
}

fn gaps(found: &Diagnosis) -> String {
    if found.gaps.is_empty() {
        return String::new();
    }
    let mut text = "<section>\n<h2>not seen</h2>\n".to_owned();
    for gap in &found.gaps {
        let said = format!("{} ({}); {}", gap.what, gap.why, gap.remedy);
        let _infallible = writeln!(text, "<p>{}</p>", escape(&sanitize_str(&said)));
    }
    text.push_str("</section>\n");
    text
}

#[cfg(test)]
mod tests;
