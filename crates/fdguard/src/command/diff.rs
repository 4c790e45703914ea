//! `fdguard diff`: what changed between two snapshots?

use std::path::Path;

use anyhow::Context as _;
use fdguard_core::{Snapshot, delta, document};
use fdguard_probe::{Options, Probe};

use crate::cli::DiffArgs;
use crate::exit::{self, Hinted};
use crate::output;
use crate::report::difference;

pub(super) fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    let before = side(&args.before)?;
    let after = side(&args.after)?;
    let Some(delta) = delta::delta(&before, &after) else {
        let hint = "a radar snapshot has counts only: take both as root, or as the process's user";
        return Err(Hinted::look("one of the two has no list of descriptors", hint).into());
    };
    let file = args.output.as_deref();
    if args.json {
        output::emit(file, |out| {
            difference::write_json(out, &before, &after, &delta)
        })?;
    } else {
        output::emit_styled(file, |out| difference::write(out, &before, &after, &delta))?;
    }
    let any = !(delta.opened.is_empty() && delta.closed.is_empty() && delta.changed.is_empty());
    Ok(if any && args.exit_code {
        exit::FINDINGS
    } else {
        exit::CLEAN
    })
}

/// A file when there is one of that name, else a process number.
fn side(text: &str) -> anyhow::Result<Snapshot> {
    let path = Path::new(text);
    if path.exists() {
        let mut snapshots = read_file(path)?;
        if snapshots.len() != 1 {
            let hint = "save one process at a time: fdguard snap PID --json -o FILE";
            let message = format!("{text}: holds {} snapshots, expected one", snapshots.len());
            return Err(Hinted::look(message, hint).into());
        }
        return Ok(snapshots.remove(0));
    }
    match text.parse::<u32>() {
        Ok(pid) if pid > 0 => Ok(Probe::new()?.snapshot(pid, Options::default())?),
        _ => Err(Hinted::look(
            format!("{text}: no such file, and no process number"),
            "fdguard diff --help",
        )
        .into()),
    }
}

/// Reads a saved document.
pub(super) fn read_file(path: &Path) -> anyhow::Result<Vec<Snapshot>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    document::read(&bytes).map_err(|error| {
        let hint = "a snapshot is made by fdguard snap PID --json -o FILE";
        Hinted::look(format!("{}: {error}", path.display()), hint).into()
    })
}
