//! The doctor's report as a web page: one file, no scripts, no external resources. That of a trace
//! is in [`trace`].

mod plot;
mod scale;
#[cfg(feature = "trace")]
pub mod trace;

use std::borrow::Cow;
use std::fmt::Write as _;

use fdguard_core::evidence::{Evidence, ExaminedProcess, ProcessVisit};
use fdguard_core::lint::Severity;

use super::doctor::{Block, Note, Outline, OutlineTable, Section, groups};
use super::table::Side;
use crate::terminal::sanitize;

const STYLE: &str = include_str!("style.css");
/// How many processes are drawn; the others are in the tables.
const MOST_PLOTS: usize = 8;

/// Text that is safe between tags and in attributes. Misleading characters were made visible
/// before.
#[must_use]
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(['&', '<', '>', '"', '\'', '`']) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '`' => safe.push_str("&#96;"),
            other => safe.push(other),
        }
    }
    Cow::Owned(safe)
}

/// The page.
#[must_use]
pub fn page(evidence: &Evidence) -> String {
    let outline = Outline::of(evidence);
    let title = escape(&outline.title);
    let headline = &outline.headline;
    let level = level(headline.severity);
    let mut body = format!(
        "<header>\n<p class=\"kicker\">fdguard doctor</p>\n<h1>{title}</h1>\n\
         <p class=\"verdict {level}\"><strong>{}</strong> {}</p>\n<p class=\"about\">{}</p>\n</header>\n",
        escape(headline.word),
        escape(&headline.text),
        escape(&outline.about),
    );
    body.push_str("<main>\n");
    for section in &outline.findings {
        body.push_str(&write_section(section));
    }
    let patients: Vec<_> = evidence.patients().collect();
    // Draw one of each group of similar processes.
    for group in groups(evidence).iter().take(MOST_PLOTS) {
        let first = group.members.first().and_then(|index| patients.get(*index));
        if let Some((visit, examined)) = first {
            body.push_str(&plots(evidence, visit, examined));
        }
    }
    for section in &outline.sections {
        body.push_str(&write_section(section));
    }
    body.push_str("</main>\n");
    Document {
        title: format!("{}: {title}", escape(headline.word)),
        policy: "",
        style: STYLE,
        body,
        footer: format!(
            "MadeReport by fdguard {}. This file is self-contained and has no scripts.",
            escape(&evidence.material.machine.fdguard)
        ),
        script: String::new(),
    }
    .text()
}

/// The frame of every page. All of its parts are markup already.
struct Document<'a> {
    title: String,
    /// The content security policy: what may run; by default nothing.
    policy: &'a str,
    style: &'a str,
    body: String,
    footer: String,
    script: String,
}

impl Document<'_> {
    fn text(&self) -> String {
        let Self {
            title,
            policy,
            style,
            body,
            footer,
            script,
        } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{policy}\">\n\
             <title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\
             <footer>{footer}</footer>\n{script}</body>\n</html>\n"
        )
    }
}

/// The CSS class for a severity; the word is always shown, too.
fn level(severity: Option<Severity>) -> &'static str {
    match severity {
        Some(Severity::Critical) => "critical",
        Some(Severity::Warning) => "warning",
        Some(Severity::Info) => "info",
        None => "calm",
    }
}

fn word(severity: Severity) -> &'static str {
    super::style::severity(severity).1
}

fn plots(evidence: &Evidence, visit: &ProcessVisit, examined: &ExaminedProcess) -> String {
    let Some(curves) = &examined.curves else {
        return String::new();
    };
    let process = &visit.begin.process;
    let opinion = evidence
        .diagnosis
        .processes
        .iter()
        .find(|one| one.pid == process.pid);
    let limit = opinion.and_then(|one| one.walls.iter().find(|wall| wall.name == "soft-limit"));
    let of = match evidence.material.visits.len() {
        1 => String::new(),
        _ => format!(" of {} (pid {})", sanitize(&process.comm), process.pid),
    };
    let mut text = format!(
        "<section class=\"plots\">\n<h2>descriptors over time{}</h2>\n",
        escape(&of)
    );
    text.push_str(&plot::total(curves, limit));
    text.push_str(&plot::families(curves));
    text.push_str("</section>\n");
    text
}

fn write_section(section: &Section) -> String {
    let mut text = format!("<section>\n<h2>{}</h2>\n", escape(&section.title));
    for block in &section.blocks {
        match block {
            Block::Sentence(sentence) => {
                let _infallible = writeln!(text, "<p>{}</p>", escape(sentence));
            }
            Block::Note(note) => text.push_str(&write_note(note)),
            Block::Table(table) => text.push_str(&write_table(table)),
        }
    }
    text.push_str("</section>\n");
    text
}

fn write_note(note: &Note) -> String {
    let mut text = format!("<article class=\"note {}\">\n<p>", level(note.severity));
    if let Some(severity) = note.severity {
        let _infallible = write!(text, "<strong>{}</strong> ", word(severity));
    }
    text.push_str(&escape(&note.text));
    if let Some(rule) = &note.rule {
        let _infallible = write!(text, " <code>{}</code>", escape(rule));
    }
    text.push_str("</p>\n");
    for (label, more) in &note.more {
        let _infallible = writeln!(
            text,
            "<p class=\"more\"><b>{}</b> {}</p>",
            escape(label),
            escape(more)
        );
    }
    text.push_str("</article>\n");
    text
}

fn write_table(table: &OutlineTable) -> String {
    let class = |side: Side| {
        if side == Side::Right {
            " class=\"n\""
        } else {
            ""
        }
    };
    let mut text = "<div class=\"wide\"><table>\n".to_owned();
    if table.columns.iter().any(|(name, _)| !name.is_empty()) {
        text.push_str("<thead><tr>");
        for (name, side) in &table.columns {
            let _infallible = write!(
                text,
                "<th scope=\"col\"{}>{}</th>",
                class(*side),
                escape(name)
            );
        }
        text.push_str("</tr></thead>\n");
    }
    text.push_str("<tbody>\n");
    for row in &table.rows {
        text.push_str("<tr>");
        for (cell, (_, side)) in row.iter().zip(&table.columns) {
            let _infallible = write!(text, "<td{}>{}</td>", class(*side), escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
    if let Some(more) = &table.more {
        let _infallible = writeln!(text, "<p class=\"about\">{}</p>", escape(more));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn foreign_text_is_text_between_tags_and_in_attributes() {
        assert_eq!(
            escape("<script>alert(\"1\")</script> & 'x' `y`"),
            "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#39;x&#39; &#96;y&#96;"
        );
        assert_eq!(escape("plain"), "plain");
    }
}
