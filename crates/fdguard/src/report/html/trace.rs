//! A trace as a web page: one file, nothing fetched from anywhere. Its script sorts the table and zooms the flame graph; without
//! it everything is there all the same.

use std::fmt::Write as _;

use fdguard_core::diagnosis::{Diagnosis, ProcessDiagnosis};
use fdguard_core::finding::Finding;
use fdguard_core::hazard::Hazard;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::{Frame, Origin};
use fdguard_core::rule::wording;

use super::{Document, MOST_PLOTS, STYLE, escape, level, plot, word};
use crate::report::diagnosis;
use crate::report::table::{class_name, counted, thousands};
use crate::report::trace::{Place, Seen, hazard, name, svg};
use crate::terminal::{sanitize, sanitize_str};

const OWN_STYLE: &str = include_str!("trace.css");
const SORT: &str = include_str!("sort.js");
/// Sites of one process that are listed: beyond these there is little of each.
const MOST_SITES: usize = 500;
const MOST_HAZARDS: usize = 200;

/// The page. Only scripts with the word `nonce` run in it.
#[must_use]
pub fn page(seen: &Seen<'_>, nonce: &str) -> String {
    let found = seen.diagnosis;
    let words = found.process.cmdline.iter().map(sanitize);
    let title = match words.collect::<Vec<_>>().join(" ") {
        line if line.is_empty() => sanitize(&found.process.comm),
        line => line,
    };
    let mut body = header(seen, &title);
    body.push_str("<main>\n");
    for part in [hazards(found), findings(found), sites(seen)] {
        body.push_str(&part);
    }
    if seen.ways().next().is_some() {
        let _infallible = write!(
            body,
            "<section>\n<h2>flame graph of what is still open</h2>\n{}</section>\n",
            svg::figure(seen)
        );
    }
    body.push_str(&timelines(seen));
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
            "Made by fdguard {}. This file is complete: it fetches nothing.",
            env!("CARGO_PKG_VERSION")
        ),
        script: format!(
            "<script nonce=\"{nonce}\">\n{SORT}{}</script>\n",
            svg::SCRIPT
        ),
    }
    .text()
}

fn header(seen: &Seen<'_>, title: &str) -> String {
    let found = seen.diagnosis;
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
        escape(&sentence(seen)),
        counted(found.samples, "look", "looks"),
        wording::duration(length.as_secs_f64()),
        found.started_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
    )
}

/// What matters most, in one line.
fn sentence(seen: &Seen<'_>) -> String {
    let found = seen.diagnosis;
    let mut parts = Vec::new();
    let hazards = found.hazards.iter().filter(|one| one.cleared.is_none());
    let hazards = hazards.map(|one| one.count).sum();
    if hazards > 0 {
        parts.push(counted(
            hazards,
            "misuse of a descriptor",
            "misuses of descriptors",
        ));
    }
    parts.push(match (found.baseline, found.last) {
        (Some(first), Some(last)) if first == last => counted(last, "descriptor", "descriptors"),
        (Some(first), Some(last)) => {
            format!("{} → {} descriptors", thousands(first), thousands(last))
        }
        _ if found.verdict == Verdict::Unknown => "it ended before the first look".to_owned(),
        _ => "an unknown number of descriptors".to_owned(),
    });
    let places = seen.holders.iter().flat_map(|holder| &holder.places);
    // Of equals the first.
    if let Some(place) = places.min_by_key(|place| std::cmp::Reverse(place.live)) {
        let live = thousands(place.live);
        parts.push(format!(
            "{live} still open from {}",
            name::place(place.culprit)
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

/// A line that opens to its stack. The line is markup already.
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

fn sites(seen: &Seen<'_>) -> String {
    const COLUMNS: [(&str, bool); 9] = [
        ("line", false),
        ("live", true),
        ("opened", true),
        ("closed", true),
        ("a second", true),
        ("oldest", true),
        ("class", false),
        ("target", false),
        ("process", false),
    ];
    let holders = || seen.holders.iter().filter(|one| !one.places.is_empty());
    let mut text = "<section>\n<h2>where what is still open was opened</h2>\n".to_owned();
    if holders().next().is_none() {
        text.push_str(
            "<p>Nothing that the tracer saw being opened is still open.</p>\n</section>\n",
        );
        return text;
    }
    text.push_str("<div class=\"wide\"><table class=\"sites\">\n<thead><tr>");
    let is_several = holders().count() > 1;
    let columns = COLUMNS.len() - usize::from(!is_several);
    for (name, is_number) in COLUMNS.into_iter().take(columns) {
        let class = if is_number { " class=\"n\"" } else { "" };
        let _infallible = write!(text, "<th scope=\"col\"{class}>{name}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for holder in holders() {
        let process = format!("{} ({})", sanitize_str(holder.comm), holder.pid);
        for place in holder.places.iter().take(MOST_SITES) {
            text.push_str(&row(place, is_several.then_some(&process)));
        }
    }
    text.push_str("</tbody></table></div>\n");
    for holder in holders() {
        let what = format!("sites of {}", escape(&sanitize_str(holder.comm)));
        text.push_str(&left(holder.places.len(), MOST_SITES, &what));
    }
    text.push_str("</section>\n");
    text
}

fn row(place: &Place<'_>, process: Option<&str>) -> String {
    let line = escape(&name::place(place.culprit)).into_owned();
    let thread = place.thread.map(|thread| format!(", thread {thread}"));
    let how = escape(&format!("{}{}", place.how, thread.unwrap_or_default())).into_owned();
    let mut text = format!(
        "<tr><td data-v=\"{line}\">{}</td>",
        details(
            &format!("<span title=\"{how}\">{line}</span>"),
            place.stack,
            false
        )
        .trim_end()
    );
    for count in [place.live, place.opened, place.closed] {
        let _infallible = write!(
            text,
            "<td class=\"n\" data-v=\"{count}\">{}</td>",
            thousands(count)
        );
    }
    let numbers = [
        (
            place.per_second,
            place.per_second.map(|rate| format!("+{rate:.1}")),
        ),
        (place.oldest, place.oldest.map(wording::duration)),
    ];
    for (number, shown) in numbers {
        // What is not known is sorted below everything.
        let _infallible = write!(
            text,
            "<td class=\"n\" data-v=\"{}\">{}</td>",
            number.unwrap_or(-1.0),
            shown.unwrap_or_else(|| "–".to_owned())
        );
    }
    let class = place.class.map_or_else(|| "–".to_owned(), class_name);
    let target = place.target.map_or_else(|| "–".to_owned(), sanitize);
    let _infallible = write!(
        text,
        "<td>{}</td><td class=\"wrap\">{}</td>",
        escape(&class),
        escape(&target)
    );
    if let Some(process) = process {
        let _infallible = write!(text, "<td>{}</td>", escape(process));
    }
    text.push_str("</tr>\n");
    text
}

fn timelines(seen: &Seen<'_>) -> String {
    let mut text = String::new();
    let with = seen
        .holders
        .iter()
        .filter_map(|one| Some((one, one.curves?)));
    for (holder, curves) in with.take(MOST_PLOTS) {
        let opinions: &[ProcessDiagnosis] = &seen.diagnosis.processes;
        let opinion = opinions.iter().find(|one| one.pid == holder.pid);
        let limit = opinion.and_then(|one| one.walls.iter().find(|wall| wall.name == "soft-limit"));
        let of = match seen.holders.len() {
            1 => String::new(),
            _ => format!(" of {} (pid {})", sanitize_str(holder.comm), holder.pid),
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
