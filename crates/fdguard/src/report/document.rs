//! The content of a report, independent of its form: `super::text` writes it for a terminal or a
//! file, [`super::html`] as a web page.
//!
//! Every string here is safe to show: foreign names went through [`crate::terminal::sanitize`].

use fdguard_core::Gap;
use fdguard_core::lint::{LintHit, Severity};

use super::table::Side;
use crate::terminal::sanitize_str;

/// A whole report.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The process.
    pub title: String,
    /// The first sentence.
    pub headline: ReportHeadline,
    /// How the data was collected.
    pub about: String,
    /// The rest, the most important first.
    pub sections: Vec<Section>,
}

/// The verdict in a sentence, and its severity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportHeadline {
    /// The highest severity found; `None` if nothing was found.
    pub severity: Option<Severity>,
    /// The name of the verdict.
    pub word: &'static str,
    /// The text after it.
    pub text: String,
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
    /// A less important one, such as what was left out.
    Remark(String),
    /// A finding.
    Note(Note),
    /// Rows.
    Table(ReportTable),
    /// A drawing as SVG markup; a text has none.
    Picture(String),
}

/// A finding, its meaning and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Its severity, if it has one.
    pub severity: Option<Severity>,
    /// What it is.
    pub text: String,
    /// The rule that found it.
    pub rule: Option<String>,
    /// More about it.
    pub more: Vec<NotePart>,
}

/// More about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotePart {
    /// A sentence.
    Sentence(String),
    /// A text with its label.
    Labelled(&'static str, String),
    /// A call, with its label.
    Call(&'static str, ShownStack),
}

/// A line of code that expands to its stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownStack {
    /// The line.
    pub text: String,
    /// More about the line, shown on request.
    pub hint: Option<String>,
    /// Whether the call is to blame.
    pub is_at_fault: bool,
    /// Whether to show the stack at once.
    pub is_open: bool,
    /// The frames, innermost first: the line and its whole path.
    pub frames: Vec<(String, String)>,
}

/// Rows with column names.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTable {
    /// The columns; names may be empty if the rows explain themselves.
    pub columns: &'static [(&'static str, Side)],
    /// The cells.
    pub rows: Vec<Vec<TableCell>>,
}

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableCell {
    /// Its text.
    pub text: String,
    /// Its value, to sort the rows by.
    pub value: Option<String>,
    /// The stack of the line that it names.
    pub stack: Option<ShownStack>,
}

impl From<String> for TableCell {
    fn from(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

impl Section {
    /// A section, unless it is empty.
    pub fn of(title: impl Into<String>, blocks: Vec<Block>) -> Option<Self> {
        (!blocks.is_empty()).then(|| Self {
            title: title.into(),
            blocks,
        })
    }

    /// What could not be seen.
    #[must_use]
    pub fn gaps(gaps: &[Gap]) -> Option<Self> {
        let notes = gaps.iter().map(|gap| {
            let text = format!("{}: {}", sanitize_str(&gap.what), sanitize_str(&gap.why));
            let remedy = sanitize_str(&gap.remedy).into_owned();
            Block::note(None, text, None, vec![("remedy", remedy)])
        });
        Self::of("not seen", notes.collect())
    }
}

impl Block {
    /// A finding with labelled texts.
    #[must_use]
    pub fn note(
        severity: Option<Severity>,
        text: String,
        rule: Option<&str>,
        more: Vec<(&'static str, String)>,
    ) -> Self {
        let more = more.into_iter();
        Self::Note(Note {
            severity,
            text,
            rule: rule.map(|rule| sanitize_str(rule).into_owned()),
            more: more
                .map(|(label, text)| NotePart::Labelled(label, text))
                .collect(),
        })
    }

    /// What a lint found in a process.
    #[must_use]
    pub fn lint(hit: &LintHit, subject: &str) -> Self {
        let text = format!("{subject}{}", sanitize_str(&hit.message));
        let fix = vec![("fix", hit.fix.to_owned())];
        Self::note(Some(hit.severity), text, Some(hit.rule), fix)
    }

    /// Rows of plain cells.
    pub fn table(
        columns: &'static [(&'static str, Side)],
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        let rows = rows.into_iter();
        let rows = rows.map(|row| row.into_iter().map(TableCell::from).collect());
        Self::Table(ReportTable {
            columns,
            rows: rows.collect(),
        })
    }
}

/// The parts of an advice: what to do next, how to confirm it, the fix and the command.
#[must_use]
pub fn steps(advice: &str) -> [(&'static str, &str); 4] {
    let (advice, line) = advice.split_once("Line: ").unwrap_or((advice, ""));
    let (advice, fix) = advice.split_once(" Fix: ").unwrap_or((advice, ""));
    let (next, confirm) = advice.split_once(" Confirm: ").unwrap_or((advice, ""));
    [
        ("next", next),
        ("confirm", confirm),
        ("fix", fix),
        ("line", line),
    ]
    .map(|(label, text)| (label, text.trim_end()))
}
