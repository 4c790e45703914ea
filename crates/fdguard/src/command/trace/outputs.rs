//! The additional output files: opened before the program starts, written when it has ended.

use std::io::Write as _;
use std::path::Path;

use fdguard_diagnose::trace::TraceReport;
use fdguard_process::random;
use fdguard_trace::ProcessWhy;

use crate::cli::TraceArgs;
use crate::exit::{self, HintedError};
use crate::output::OutputStream;
use crate::report::html;
use crate::report::trace::tree::StackNode;
use crate::report::trace::{folded, pprof, svg};

/// The requested files.
pub(super) struct Outputs(Vec<(Format, OutputStream)>);

#[derive(Clone, Copy)]
enum Format {
    Folded,
    FlameGraph,
    Pprof,
    Html,
}

impl Outputs {
    /// Opens all files first, so that the program does not run in vain.
    pub(super) fn open(args: &TraceArgs) -> anyhow::Result<Self> {
        let outputs = &args.outputs;
        let asked = [
            (Format::Folded, &outputs.folded),
            (Format::FlameGraph, &outputs.flamegraph),
            (Format::Pprof, &outputs.pprof),
            (Format::Html, &outputs.html),
        ];
        let asked = asked
            .into_iter()
            .filter_map(|(format, path)| Some((format, path.as_deref()?)));
        let mut taken: Vec<&Path> = args.output.as_deref().into_iter().collect();
        let mut streams = Vec::new();
        for (format, path) in asked {
            if taken.contains(&path) && !is_special(path) {
                let message = format!("{}: used for two outputs", path.display());
                return Err(HintedError::usage(message, "give each output its own file").into());
            }
            taken.push(path);
            streams.push((format, OutputStream::open(Some(path))?));
        }
        Ok(Self(streams))
    }

    /// Writes all files; if one fails, the others are still written.
    pub(super) fn write(self, report: &TraceReport, whys: &[ProcessWhy]) -> anyhow::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let tree = StackNode::from_report(report);
        let mut failed = None;
        for (format, mut stream) in self.0 {
            let written = format
                .bytes((report, whys), &tree)
                .and_then(|bytes| Ok(stream.write_all(&bytes)?))
                .and_then(|()| stream.finish());
            if let Err(error) = written
                && let Some(before) = failed.replace(error.context(format.option()))
            {
                exit::warn(&before);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

impl Format {
    fn option(self) -> &'static str {
        match self {
            Self::Folded => "--folded",
            Self::FlameGraph => "--flamegraph",
            Self::Pprof => "--pprof",
            Self::Html => "--html",
        }
    }

    fn bytes(
        self,
        (report, whys): (&TraceReport, &[ProcessWhy]),
        tree: &StackNode,
    ) -> anyhow::Result<Vec<u8>> {
        Ok(match self {
            Self::Folded => folded::text(tree).into_bytes(),
            Self::FlameGraph => svg::file(&report.diagnosis.process.comm, tree).into_bytes(),
            Self::Pprof => pprof::file(&report.diagnosis, tree)?,
            Self::Html => {
                // Only the page's own scripts carry the nonce, and no others run.
                html::trace::page(report, whys, tree, &random::nonce()?).into_bytes()
            }
        })
    }
}

/// A pipe or a device can be written to twice.
fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| !meta.is_file())
}
