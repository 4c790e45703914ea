//! `fdguard explain`: which of these log lines are really descriptor exhaustion?

use std::io::{self, IsTerminal as _};
use std::path::Path;

use fdguard_core::explain::{self, Explanation, LogScanner, LogVerdict, WallName};
use fdguard_core::playbook::{self, Playbook, Suspect};
use fdguard_core::summary::ClassCount;
use fdguard_core::{Class, Pid, Snapshot, Summary, Text, Tier};
use fdguard_diagnose::log;
use fdguard_probe::{Options, Probe};

use super::pick;
use crate::cli::ExplainArgs;
use crate::exit::{self, HintedError};
use crate::report::explanation::{self, ExplainedProcess};
use crate::report::playbook as listing;
use crate::{input, output};

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let playbook = read_playbook(args.playbook.as_deref())?;
    if args.list || args.class.is_some() || args.search.is_some() {
        list(args, &playbook)?;
        return Ok(exit::CLEAN);
    }
    // First, because the process may end while a long log is read.
    let pid = pick::pick_one(args.pid, &args.groups, "explain")?;
    let seen = pid.map(read_snapshot).transpose()?;
    let near = seen
        .as_ref()
        .map(|(_, summary)| explain::near(&summary.walls))
        .unwrap_or_default();
    let explanation = read_log(args, &playbook, &near, seen.is_some())?;
    let held = seen.map(|seen| held_by(seen, &explanation, &playbook));
    write(args, &explanation, held.as_ref())?;
    Ok(exit_code(&explanation, held.as_ref()))
}

fn exit_code(explanation: &Explanation, held: Option<&ExplainedProcess>) -> u8 {
    if held.is_some_and(|held| held.snapshot.tier == Tier::Radar) {
        exit::COULD_NOT_LOOK
    } else if explanation.symptoms.is_empty() {
        exit::CLEAN
    } else {
        exit::FINDINGS
    }
}

fn write(
    args: &ExplainArgs,
    explanation: &Explanation,
    held: Option<&ExplainedProcess>,
) -> anyhow::Result<()> {
    let file = args.output.as_deref();
    if args.json {
        let log = args.log.as_deref().filter(|log| !is_stdin(log));
        let log = log.map(|log| Text::from(log.as_os_str().as_encoded_bytes()));
        return output::emit(file, |out| {
            explanation::write_json(out, log.as_ref(), explanation, held)
        });
    }
    let width = file.map_or_else(crate::terminal::width, |_| None);
    output::emit_styled(file, |out| {
        explanation::write(out, explanation, held, width)
    })
}

fn list(args: &ExplainArgs, playbook: &Playbook) -> anyhow::Result<()> {
    let listed = match (&args.class, &args.search) {
        (Some(class), _) => listing::PlaybookSelection::about(playbook, class),
        (_, Some(word)) => listing::PlaybookSelection::with(playbook, word),
        _ => listing::PlaybookSelection::all(playbook),
    };
    let file = args.output.as_deref();
    if args.json {
        output::emit(file, |out| listing::write_json(out, &listed))
    } else {
        output::emit_styled(file, |out| listing::write(out, &listed))
    }
}

fn read_playbook(file: Option<&Path>) -> anyhow::Result<Playbook> {
    let ours = Playbook::embedded();
    let Some(path) = file else {
        return Ok(ours);
    };
    let text = input::read_text(path)?;
    let user = Playbook::parse(&text).map_err(|error| {
        let hint = "run fdguard explain --list --json to see entries with all fields";
        HintedError::usage(format!("{}: {error}", path.display()), hint)
    })?;
    Ok(ours.extended_by(user))
}

fn read_snapshot(pid: Pid) -> anyhow::Result<(Snapshot, Summary)> {
    let options = Options {
        peers: false,
        ..Options::default()
    };
    let snapshot = Probe::new()?.snapshot(pid, options)?;
    let summary = Summary::summarize(&snapshot);
    Ok((snapshot, summary))
}

/// What the process holds, and advice on what is suspicious, given the log.
fn held_by(
    (snapshot, summary): (Snapshot, Summary),
    explanation: &Explanation,
    playbook: &Playbook,
) -> ExplainedProcess {
    let classes = summary.classes.as_deref().unwrap_or_default();
    let advice = suspect(explanation, classes).and_then(|class| {
        let mut targets = summary.targets.iter().flatten();
        let target = targets.find(|row| row.class == *class);
        let advice = playbook.advise(&Suspect {
            class,
            target: target.map(|row| row.example.as_bytes()),
            comm: snapshot.process.comm.as_bytes(),
            exe: snapshot.process.exe.as_ref().map(Text::as_bytes),
            beside: &playbook::beside(classes, class),
        })?;
        Some((class.clone(), advice.clone()))
    });
    ExplainedProcess {
        advice,
        snapshot,
        summary,
    }
}

/// The largest class, unless the log mentions a limit that belongs to another class.
fn suspect<'a>(explanation: &Explanation, classes: &'a [ClassCount]) -> Option<&'a Class> {
    let wall = match explanation.verdict {
        LogVerdict::OtherWall => explanation.symptoms.first().map(|found| found.wall),
        _ => None,
    };
    let of_wall = match wall {
        Some(WallName::InotifyInstances | WallName::InotifyWatches) => Some(Class::Inotify),
        Some(WallName::Ptys) => Some(Class::PtyMaster),
        _ => None,
    };
    let mut held = classes.iter().map(|row| &row.class);
    let named = held.clone().find(|class| Some(*class) == of_wall.as_ref());
    named.or_else(|| held.next())
}

fn is_stdin(log: &Path) -> bool {
    log.as_os_str() == "-"
}

fn read_log(
    args: &ExplainArgs,
    playbook: &Playbook,
    near: &[WallName],
    has_process: bool,
) -> anyhow::Result<Explanation> {
    let mut scanner = LogScanner::new(playbook)?;
    match args.log.as_deref() {
        Some(path) if !is_stdin(path) => {
            let file = input::open(path)?;
            log::scan(&mut scanner, file, &path.display().to_string())?;
        }
        // A terminal is not a log. With --pid there is still something to report.
        None if io::stdin().is_terminal() && has_process => {}
        None if io::stdin().is_terminal() => {
            let hint = "run fdguard explain LOG, or pipe a log into fdguard explain; --list shows the playbook";
            return Err(HintedError::usage("no log given", hint).into());
        }
        _ => log::scan(&mut scanner, io::stdin().lock(), "standard input")?,
    }
    Ok(scanner.finish(near))
}
