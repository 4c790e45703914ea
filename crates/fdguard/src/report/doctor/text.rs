//! The doctor's report on a terminal and in a text file.

use std::io::Write;
use std::path::Path;

use fdguard_core::evidence::Evidence;

use super::outline::outline;
use crate::report::style::{self, DIM, HEADING};
use crate::report::text::{TextWriter, paragraph};
use crate::terminal::sanitize_bytes;

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
    let outline = outline(evidence);
    let width = options.width;
    let mut page = TextWriter { out, width };
    let headline = &outline.headline;
    let severity = headline.severity.map(style::severity);
    let style = severity.map_or(HEADING, |(style, _)| style);
    let sentence = format!("{}: {}", headline.word, headline.text);
    page.lead((style, headline.word), &sentence, 0)?;
    page.heading(&outline.title)?;
    page.sentence(&outline.about)?;
    page.sections(&outline.sections)?;
    write_end(&mut page, evidence, options)
}

fn write_end(
    page: &mut TextWriter<'_>,
    evidence: &Evidence,
    options: &Options<'_>,
) -> anyhow::Result<()> {
    use std::os::unix::ffi::OsStrExt as _;
    match options.bundle {
        Some(place) => {
            let shown = sanitize_bytes(place.as_os_str().as_bytes());
            page.heading("evidence")?;
            writeln!(page.out, "  {shown}")?;
            page.sentence(if evidence.redacted {
                "names are redacted; read report.txt, then attach the bundle to the issue"
            } else {
                "the bundle contains files, peers and arguments; read it before you attach it to an issue, or use --redact"
            })
        }
        None if options.hint => {
            let pid = evidence.diagnosis.process.pid;
            let hint = format!(
                "to attach this to an issue, run: fdguard doctor {pid} -o evidence.tar.zst --redact"
            );
            paragraph(page.out, &hint, page.width, (0, 2), DIM)
        }
        None => Ok(()),
    }
}
