//! A report as a web page: one file, no external resources. The pages of the doctor have no
//! scripts; the content of [`trace`] is there without its script, too.

mod plot;
mod scale;
#[cfg(feature = "trace")]
pub mod trace;

use std::borrow::Cow;
use std::fmt::Write as _;

use fdguard_core::Pid;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::evidence::{Curves, Evidence};
use fdguard_core::lint::Severity;

use super::doctor::outline;
use super::document::{Block, Document, Note, NotePart, ReportTable, Section, ShownStack};
use super::table::Side;

const STYLE: &str = include_str!("style.css");

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

/// The page of the doctor.
#[must_use]
pub fn page(evidence: &Evidence) -> String {
    let outline = outline(evidence);
    let frame = PageFrame {
        command: "fdguard doctor",
        subject: &outline.title,
        version: &evidence.material.machine.fdguard,
        policy: "",
        style: STYLE,
        script: "",
    };
    frame.page(&outline)
}

/// What is around the content. Policy, style and script are markup already.
struct PageFrame<'a> {
    command: &'a str,
    /// The process, in the title of the window.
    subject: &'a str,
    version: &'a str,
    /// The content security policy: what may run; by default nothing.
    policy: &'a str,
    style: &'a str,
    script: &'a str,
}

impl PageFrame<'_> {
    fn page(&self, document: &Document) -> String {
        let Self {
            command,
            policy,
            style,
            script,
            ..
        } = self;
        let headline = &document.headline;
        let word = escape(headline.word);
        let scripts = match script.is_empty() {
            true => " and has no scripts",
            false => "",
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'{policy}\">\n\
             <title>{word}: {}</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
             <header>\n<p class=\"kicker\">{command}</p>\n<h1>{}</h1>\n\
             <p class=\"verdict {}\"><strong>{word}</strong> {}</p>\n<p class=\"about\">{}</p>\n</header>\n\
             <main>\n{}</main>\n\
             <footer>Made by fdguard {}. This file is self-contained{scripts}.</footer>\n{script}</body>\n</html>\n",
            escape(self.subject),
            escape(&document.title),
            level(headline.severity),
            escape(&headline.text),
            escape(&document.about),
            document.sections.iter().map(section).collect::<String>(),
            escape(self.version),
        )
    }
}

/// The descriptors of a process over time; `of` names it if there are several.
pub(super) fn plots(
    diagnosis: &Diagnosis,
    pid: Pid,
    curves: &Curves,
    of: Option<String>,
) -> Option<Section> {
    let opinion = diagnosis.processes.iter().find(|one| one.pid == pid);
    let limit = opinion.and_then(|one| one.walls.iter().find(|wall| wall.name == "soft-limit"));
    let of = of.map_or_else(String::new, |of| format!(" of {of}"));
    let pictures = [plot::total(curves, limit), plot::families(curves)];
    let title = format!("descriptors over time{of}");
    Section::of(title, pictures.map(Block::Picture).to_vec())
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

fn section(section: &Section) -> String {
    let blocks: String = section.blocks.iter().map(block).collect();
    let title = escape(&section.title);
    format!("<section>\n<h2>{title}</h2>\n{blocks}</section>\n")
}

fn block(block: &Block) -> String {
    match block {
        Block::Sentence(text) => format!("<p>{}</p>\n", escape(text)),
        Block::Remark(text) => format!("<p class=\"about\">{}</p>\n", escape(text)),
        Block::Note(one) => note(one),
        Block::Table(one) => table(one),
        Block::Picture(markup) => markup.clone(),
    }
}

fn note(note: &Note) -> String {
    let mut text = format!("<article class=\"note {}\">\n<p>", level(note.severity));
    if let Some(severity) = note.severity {
        let _infallible = write!(text, "<strong>{}</strong> ", word(severity));
    }
    text.push_str(&escape(&note.text));
    if let Some(rule) = &note.rule {
        let _infallible = write!(text, " <code>{}</code>", escape(rule));
    }
    text.push_str("</p>\n");
    for part in &note.more {
        let _infallible = match part {
            NotePart::Sentence(more) => writeln!(text, "<p>{}</p>", escape(more)),
            NotePart::Labelled(label, more) => {
                let (label, more) = (escape(label), escape(more));
                writeln!(text, "<p class=\"more\"><b>{label}</b> {more}</p>")
            }
            NotePart::Call(label, stack) => {
                let label = format!("<b>{}</b> ", escape(label));
                writeln!(text, "{}", details(&label, stack))
            }
        };
    }
    text.push_str("</article>\n");
    text
}

/// A line that expands to its stack, after a label that is markup already.
fn details(label: &str, stack: &ShownStack) -> String {
    let line = match (&stack.hint, escape(&stack.text)) {
        (Some(hint), line) => format!("<span title=\"{}\">{line}</span>", escape(hint)),
        (None, line) => line.into_owned(),
    };
    let fault = if stack.is_at_fault {
        " <em>at fault</em>"
    } else {
        ""
    };
    if stack.frames.is_empty() {
        return format!("<p class=\"more\">{label}{line}{fault}</p>");
    }
    let open = if stack.is_open { " open" } else { "" };
    let frames = stack.frames.iter().map(|(line, path)| {
        let (line, path) = (escape(line), escape(path));
        format!("<li title=\"{path}\">{line}</li>")
    });
    let frames: String = frames.collect();
    format!(
        "<details{open}><summary>{label}{line}{fault}</summary><ol class=\"stack\">{frames}</ol></details>"
    )
}

fn table(table: &ReportTable) -> String {
    let class = |side: Side| match side {
        Side::Right => " class=\"n\"",
        Side::Left => "",
    };
    // The script finds what can be sorted by this name.
    let mut cells = table.rows.iter().flatten();
    let name = match cells.any(|cell| cell.value.is_some()) {
        true => " class=\"sites\"",
        false => "",
    };
    let mut text = format!("<div class=\"wide\"><table{name}>\n");
    if table.columns.iter().any(|(name, _)| !name.is_empty()) {
        text.push_str("<thead><tr>");
        for (name, side) in table.columns {
            let (class, name) = (class(*side), escape(name));
            let _infallible = write!(text, "<th scope=\"col\"{class}>{name}</th>");
        }
        text.push_str("</tr></thead>\n");
    }
    text.push_str("<tbody>\n");
    for row in &table.rows {
        text.push_str("<tr>");
        for (cell, (_, side)) in row.iter().zip(table.columns) {
            let _infallible = write!(text, "<td{}", class(*side));
            if let Some(value) = &cell.value {
                let _infallible = write!(text, " data-v=\"{}\"", escape(value));
            }
            let shown = match &cell.stack {
                Some(stack) => Cow::Owned(details("", stack)),
                None => escape(&cell.text),
            };
            let _infallible = write!(text, ">{shown}</td>");
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody></table></div>\n");
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
