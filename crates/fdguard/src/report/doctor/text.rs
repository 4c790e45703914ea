//! The report on a terminal and in a text file.

use std::io::Write;
use std::path::Path;

use fdguard_core::evidence::Evidence;
use unicode_width::UnicodeWidthStr as _;

use super::outline::{Block, Note, Outline, OutlineTable};
use crate::report::style::{self, DIM, HEADING, paint};
use crate::report::table::{columns, cut};
use crate::report::wrap;
use crate::terminal::sanitize_bytes;

/// A narrower last column is useless.
const LEAST_COLUMN: usize = 16;

/// How to show it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Columns of the terminal; `None` disables cutting and wrapping.
    pub width: Option<usize>,
    /// Where the bundle is.
    pub bundle: Option<&'a Path>,
    /// Whether to print how to create a bundle if there is none.
    pub hint: bool,
}

/// Writes the report.
pub fn write(
    out: &mut dyn Write,
    evidence: &Evidence,
    options: &Options<'_>,
) -> anyhow::Result<()> {
    let outline = Outline::of(evidence);
    let page = Page {
        width: options.width,
    };
    let headline = &outline.headline;
    let color = headline
        .severity
        .map_or(HEADING, |severity| style::severity(severity).0);
    let sentence = format!("{}: {}", headline.word, headline.text);
    for (index, line) in page.wrapped(&sentence, 0, 2).iter().enumerate() {
        // Only the verdict is coloured, and the sentence may be wrapped after it.
        match line.strip_prefix(headline.word) {
            Some(rest) if index == 0 => writeln!(out, "{}{rest}", paint(color, headline.word))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    writeln!(out, "{}", paint(HEADING, page.fit(&outline.title)))?;
    page.sentence(out, &outline.about, 2)?;
    for section in outline.findings.iter().chain(&outline.sections) {
        writeln!(out, "{}", paint(HEADING, page.fit(&section.title)))?;
        for block in &section.blocks {
            match block {
                Block::Sentence(text) => page.sentence(out, text, 2)?,
                Block::Note(note) => page.note(out, note)?,
                Block::Table(table) => page.table(out, table)?,
            }
        }
    }
    write_end(out, evidence, &page, options)
}

fn write_end(
    out: &mut dyn Write,
    evidence: &Evidence,
    page: &Page,
    options: &Options<'_>,
) -> anyhow::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    match options.bundle {
        Some(place) => {
            let shown = sanitize_bytes(place.as_os_str().as_bytes());
            writeln!(out, "{}", paint(HEADING, "evidence"))?;
            writeln!(out, "  {shown}")?;
            let advice = if evidence.redacted {
                "names are redacted; read report.txt, then attach the bundle to the issue"
            } else {
                "the bundle contains files, peers and arguments; read it before you attach it to an issue, or use --redact"
            };
            page.sentence(out, advice, 2)
        }
        None if options.hint => {
            let pid = evidence.diagnosis.process.pid;
            let hint = format!(
                "to attach this to an issue, run: fdguard doctor {pid} -o evidence.tar.zst --redact"
            );
            for line in page.wrapped(&hint, 0, 2) {
                writeln!(out, "{}", paint(DIM, line))?;
            }
            Ok(())
        }
        None => Ok(()),
    }
}

/// A row that does not fit in columns: its first cell, then each other one with its name.
fn as_sentence(row: &[String], names: &[&str]) -> String {
    let (first, rest) = row
        .split_first()
        .map_or(("", row), |(first, rest)| (first.as_str(), rest));
    let named = rest.iter().zip(names.iter().skip(1));
    let parts: Vec<String> = named
        .map(|(cell, name)| format!("{name} {}", cell.trim()))
        .collect();
    format!("{first}: {}", parts.join(", "))
}

/// The available width.
struct Page {
    width: Option<usize>,
}

impl Page {
    fn sentence(&self, out: &mut dyn Write, text: &str, indent: usize) -> anyhow::Result<()> {
        for line in self.wrapped(text, indent, indent + 2) {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }

    fn note(&self, out: &mut dyn Write, note: &Note) -> anyhow::Result<()> {
        let rule = note
            .rule
            .as_ref()
            .map_or_else(String::new, |rule| format!(" [{rule}]"));
        let (color, word) = match note.severity {
            Some(severity) => style::severity(severity),
            None => (HEADING, ""),
        };
        let lead = if word.is_empty() {
            String::new()
        } else {
            format!("{word}: ")
        };
        let text = format!("{lead}{}{rule}", note.text);
        for (index, line) in self.wrapped(&text, 2, 4).iter().enumerate() {
            match line.trim_start().strip_prefix(word) {
                Some(rest) if index == 0 && !word.is_empty() => {
                    writeln!(out, "  {}{rest}", paint(color, word))?;
                }
                _ => writeln!(out, "{line}")?,
            }
        }
        for (label, text) in &note.more {
            for line in self.wrapped(&format!("{label}: {text}"), 4, 6) {
                writeln!(out, "{}", paint(DIM, line))?;
            }
        }
        Ok(())
    }

    fn table(&self, out: &mut dyn Write, table: &OutlineTable) -> anyhow::Result<()> {
        let (names, sides): (Vec<_>, Vec<_>) = table.columns.iter().copied().unzip();
        let mut rows = table.rows.clone();
        let has_names = names.iter().any(|name| !name.is_empty());
        if has_names {
            rows.insert(0, names.iter().map(|name| (*name).to_owned()).collect());
        }
        if has_names && self.is_too_narrow(&rows) {
            for row in &table.rows {
                self.sentence(out, &as_sentence(row, &names), 2)?;
            }
            rows.clear();
        }
        let width = self.width.map(|width| width.saturating_sub(2));
        for (index, line) in columns(&rows, &sides, width).into_iter().enumerate() {
            let line = line.trim_end();
            if index == 0 && has_names {
                writeln!(out, "  {}", paint(DIM, line))?;
            } else {
                writeln!(out, "  {line}")?;
            }
        }
        if let Some(more) = &table.more {
            writeln!(out, "  {}", paint(DIM, more))?;
        }
        Ok(())
    }

    /// Whether the last column would be cut away completely.
    fn is_too_narrow(&self, rows: &[Vec<String>]) -> bool {
        let Some(width) = self.width else {
            return false;
        };
        let last = rows.first().map_or(0, |row| row.len().saturating_sub(1));
        let widest = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.width()).max().unwrap_or(0)
        };
        let before: usize = (0..last).map(|column| widest(column) + 2).sum();
        let needed = widest(last).min(LEAST_COLUMN);
        before + needed + 2 > width
    }

    fn fit(&self, text: &str) -> String {
        self.width
            .map_or_else(|| text.to_owned(), |width| cut(text, width))
    }

    /// A wrapped sentence; one line without a width.
    fn wrapped(&self, text: &str, first: usize, later: usize) -> Vec<String> {
        let Some(width) = self.width else {
            return vec![format!("{}{text}", " ".repeat(first))];
        };
        wrap::lines(text, width, first, later)
    }
}
