//! A report on a terminal and in a text file.

use std::io::Write;

use anstyle::Style;
use unicode_width::UnicodeWidthStr as _;

use super::document::{Block, Note, NotePart, ReportTable, Section, TableCell};
use super::style::{self, DIM, HEADING, paint};
use super::table::{columns, cut};
use super::wrap;

/// A narrower last column is useless.
const LEAST_COLUMN: usize = 16;

/// Writes a paragraph. Without a width it is one line; `first` and `later` are the indents of the
/// first line and of the others.
pub(crate) fn paragraph(
    out: &mut dyn Write,
    text: &str,
    width: Option<usize>,
    (first, later): (usize, usize),
    style: Style,
) -> anyhow::Result<()> {
    for line in lines(text, width, first, later) {
        writeln!(out, "{}", paint(style, line))?;
    }
    Ok(())
}

fn lines(text: &str, width: Option<usize>, first: usize, later: usize) -> Vec<String> {
    wrap::lines(text, width.unwrap_or(usize::MAX), first, later)
}

/// Writes the parts of a report one after the other.
pub(super) struct TextWriter<'a> {
    pub(super) out: &'a mut dyn Write,
    /// Columns of the terminal; `None` disables cutting and wrapping.
    pub(super) width: Option<usize>,
}

impl TextWriter<'_> {
    pub(super) fn sections(&mut self, sections: &[Section]) -> anyhow::Result<()> {
        let is_picture = |block: &Block| matches!(block, Block::Picture(_));
        for section in sections {
            if !section.blocks.iter().all(is_picture) {
                self.heading(&section.title)?;
                section
                    .blocks
                    .iter()
                    .try_for_each(|block| self.block(block))?;
            }
        }
        Ok(())
    }

    pub(super) fn heading(&mut self, text: &str) -> anyhow::Result<()> {
        let width = self.width.unwrap_or(usize::MAX);
        Ok(writeln!(self.out, "{}", paint(HEADING, cut(text, width)))?)
    }

    pub(super) fn sentence(&mut self, text: &str) -> anyhow::Result<()> {
        paragraph(self.out, text, self.width, (2, 4), Style::new())
    }

    /// A paragraph whose first word has a colour.
    pub(super) fn lead(
        &mut self,
        (style, word): (Style, &str),
        text: &str,
        indent: usize,
    ) -> anyhow::Result<()> {
        let blank = " ".repeat(indent);
        for (index, line) in lines(text, self.width, indent, indent + 2)
            .iter()
            .enumerate()
        {
            // The text may be wrapped after the word.
            match line.trim_start().strip_prefix(word) {
                Some(rest) if index == 0 && !word.is_empty() => {
                    writeln!(self.out, "{blank}{}{rest}", paint(style, word))?;
                }
                _ => writeln!(self.out, "{line}")?,
            }
        }
        Ok(())
    }

    fn block(&mut self, block: &Block) -> anyhow::Result<()> {
        match block {
            Block::Sentence(text) => self.sentence(text),
            Block::Remark(text) => Ok(writeln!(self.out, "  {}", paint(DIM, text))?),
            Block::Note(note) => self.note(note),
            Block::Table(table) => self.table(table),
            Block::Picture(_) => Ok(()),
        }
    }

    fn note(&mut self, note: &Note) -> anyhow::Result<()> {
        let rule = note.rule.as_ref().map(|rule| format!(" [{rule}]"));
        let (style, word) = note.severity.map_or((HEADING, ""), style::severity);
        let colon = if word.is_empty() { "" } else { ": " };
        let text = format!("{word}{colon}{}{}", note.text, rule.unwrap_or_default());
        self.lead((style, word), &text, 2)?;
        for part in &note.more {
            let text = match part {
                NotePart::Sentence(text) => text.clone(),
                NotePart::Labelled(label, text) => format!("{label}: {text}"),
                NotePart::Call(label, stack) => format!("{label} {}", stack.text),
            };
            paragraph(self.out, &text, self.width, (4, 6), DIM)?;
        }
        Ok(())
    }

    fn table(&mut self, table: &ReportTable) -> anyhow::Result<()> {
        let (names, sides): (Vec<_>, Vec<_>) = table.columns.iter().copied().unzip();
        let texts = |row: &Vec<TableCell>| row.iter().map(|cell| cell.text.clone()).collect();
        let mut rows: Vec<Vec<String>> = table.rows.iter().map(texts).collect();
        let has_names = names.iter().any(|name| !name.is_empty());
        if has_names {
            rows.insert(0, names.iter().map(|name| (*name).to_owned()).collect());
        }
        if has_names && self.is_too_narrow(&rows) {
            let rows = rows.iter().skip(1);
            return rows
                .into_iter()
                .try_for_each(|row| self.sentence(&as_sentence(row, &names)));
        }
        let width = self.width.map(|width| width.saturating_sub(2));
        for (index, line) in columns(&rows, &sides, width).into_iter().enumerate() {
            let style = if index == 0 && has_names {
                DIM
            } else {
                Style::new()
            };
            writeln!(self.out, "  {}", paint(style, line.trim_end()))?;
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
