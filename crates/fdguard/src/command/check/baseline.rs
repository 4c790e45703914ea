//! The file of `--baseline`: what the last passing run held at its end.

use std::path::Path;

use fdguard_diagnose::check::{CheckBaseline, Proof};

use crate::exit::HintedError;
use crate::{input, output};

/// Reads the file. A missing file is not an error.
fn read(path: &Path) -> anyhow::Result<Option<CheckBaseline>> {
    let Some(text) = input::read_text_if_present(path)? else {
        return Ok(None);
    };
    let Some(saved) = CheckBaseline::parse(&text) else {
        return Err(HintedError::usage(
            format!(
                "{}: not a baseline written by fdguard check",
                path.display()
            ),
            "name another file, or remove this one: the next check that passes writes it",
        )
        .into());
    };
    Ok(Some(saved))
}

/// Fails early, before the check does work in vain.
pub(super) fn must_be_readable(path: &Path) -> anyhow::Result<()> {
    read(path).map(|_| ())
}

/// Compares with the file, and rewrites it if the check passes.
pub(super) fn apply(path: &Path, proof: &mut Proof) -> anyhow::Result<()> {
    if let Some(before) = read(path)? {
        proof.compare(&before);
    }
    let Some(held) = proof.check.held.clone().filter(|_| proof.check.passed) else {
        return Ok(());
    };
    output::emit(Some(path), |out| {
        serde_json::to_writer_pretty(&mut *out, &CheckBaseline::new(held))?;
        Ok(writeln!(out)?)
    })
}
