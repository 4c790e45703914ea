//! `fdguard diff`: what changed between two snapshots, or over several phases?

use std::path::Path;

use fdguard_core::phases::{NoPhases, Phases, Return};
use fdguard_core::{Delta, Snapshot, delta, document};
use fdguard_probe::{Options, Probe};

use crate::cli::DiffArgs;
use crate::exit::{self, HintedError};
use crate::input;
use crate::output;
use crate::report::difference;
use crate::report::phases::{self, NamedPhase};

pub(super) fn run(args: &DiffArgs) -> anyhow::Result<u8> {
    let sides = [&args.before, &args.after].into_iter().chain(&args.more);
    let all: Vec<NamedPhase> = sides.map(|text| phase(text)).collect::<Result<_, _>>()?;
    match &all[..] {
        [before, after] => two(args, &before.snapshot, &after.snapshot),
        _ => several(args, &all),
    }
}

fn two(args: &DiffArgs, before: &Snapshot, after: &Snapshot) -> anyhow::Result<u8> {
    let Some(delta) = delta::delta(before, after) else {
        let hint = "take both snapshots as root or as the process's user: a radar snapshot has only counts";
        return Err(
            HintedError::look("one of the two snapshots has no list of descriptors", hint).into(),
        );
    };
    let file = args.output.as_deref();
    if args.json {
        output::emit(file, |out| {
            difference::write_json(out, before, after, &delta)
        })?;
    } else {
        output::emit_styled(file, |out| difference::write(out, before, after, &delta))?;
    }
    Ok(code(args, is_any(&delta), !delta.opened.is_empty()))
}

fn several(args: &DiffArgs, all: &[NamedPhase]) -> anyhow::Result<u8> {
    let snapshots: Vec<&Snapshot> = all.iter().map(|phase| &phase.snapshot).collect();
    let found = Phases::compare(&snapshots).map_err(|reason| refusal(reason, all))?;
    let file = args.output.as_deref();
    if args.json {
        output::emit(file, |out| phases::write_json(out, all, &found))?;
    } else {
        output::emit_styled(file, |out| phases::write(out, all, &found))?;
    }
    let any = found.steps.iter().any(|step| is_any(&step.delta));
    let left = found.verdict == Return::NotBackToBaseline;
    Ok(code(args, any, left))
}

fn code(args: &DiffArgs, is_any: bool, is_left: bool) -> u8 {
    if (is_any && args.exit_code) || (is_left && args.fail_on.is_some()) {
        exit::FINDINGS
    } else {
        exit::CLEAN
    }
}

fn is_any(delta: &Delta) -> bool {
    !(delta.opened.is_empty() && delta.closed.is_empty() && delta.changed.is_empty())
}

fn refusal(reason: NoPhases, all: &[NamedPhase]) -> HintedError {
    let name = |index: usize| all.get(index).map_or("", |phase| phase.name.as_str());
    match reason {
        NoPhases::TooFew => {
            HintedError::usage("diff needs at least two phases", "see fdguard diff --help")
        }
        NoPhases::Unlisted(index) => HintedError::look(
            format!("{} has no list of descriptors", name(index)),
            "take all snapshots as root or as the process's user: a radar snapshot has only counts",
        ),
        NoPhases::OtherProcess(index) => HintedError::look(
            format!(
                "{} and {} are snapshots of different processes",
                name(0),
                name(index)
            ),
            "use snapshots of one running process, or compare two processes with fdguard diff A B",
        ),
    }
}

/// `NAME=FILE`, unless there is a file of that very name.
fn phase(text: &str) -> anyhow::Result<NamedPhase> {
    let (name, what) = match text.split_once('=') {
        Some((name, what)) if !name.is_empty() && !Path::new(text).exists() => {
            (name.to_owned(), what)
        }
        _ => (own_name(text), text),
    };
    let snapshot = side(what)?;
    Ok(NamedPhase { name, snapshot })
}

fn own_name(text: &str) -> String {
    let path = Path::new(text);
    let name = path.file_name().filter(|_| path.exists());
    name.map_or_else(
        || format!("process {text}"),
        |name| name.to_string_lossy().into_owned(),
    )
}

/// A file if one of that name exists, otherwise a process id.
fn side(text: &str) -> anyhow::Result<Snapshot> {
    let path = Path::new(text);
    if path.exists() {
        let mut snapshots = read_file(path)?;
        if snapshots.len() != 1 {
            let hint = "save one process at a time: fdguard snap PID --json -o FILE";
            let message = format!(
                "{text}: contains {} snapshots, expected one",
                snapshots.len()
            );
            return Err(HintedError::look(message, hint).into());
        }
        return Ok(snapshots.remove(0));
    }
    match text.parse::<u32>() {
        Ok(pid) if pid > 0 => Ok(Probe::new()?.snapshot(pid, Options::default())?),
        _ => Err(HintedError::look(
            format!("{text}: no such file, and not a process id"),
            "see fdguard diff --help",
        )
        .into()),
    }
}

/// Reads a saved document.
pub(super) fn read_file(path: &Path) -> anyhow::Result<Vec<Snapshot>> {
    let bytes = input::read(path, input::SAVED)?;
    document::read(&bytes).map_err(|error| {
        let hint = "create a snapshot with fdguard snap PID --json -o FILE";
        HintedError::look(format!("{}: {error}", path.display()), hint).into()
    })
}
