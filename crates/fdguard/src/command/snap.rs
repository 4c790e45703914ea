//! `fdguard snap`: what does this process hold right now?

use std::mem::ManuallyDrop;

use fdguard_core::rule::{self, RuleKind};
use fdguard_core::summary::TargetGroups;
use fdguard_core::{Gap, Snapshot, Summary, Tier};
use fdguard_probe::{
    Error as ProbeError, Lsof, Options, Probe, ProcessReader, read_or_gaps, workers,
};

use super::pick;
use crate::cli::{Selection, SnapArgs, ViaArg};
use crate::exit::{self, HintedError};
use crate::output;
use crate::report::{counts, human, json, lsof_fields, rules};

/// What was read, and what of it failed.
struct SnapResult {
    snapshots: Vec<(Snapshot, Summary)>,
    /// Why some processes are missing; only if others could be read.
    gaps: Vec<Gap>,
    /// Whether the output is one document or a list of them.
    many: bool,
    /// Whether all processes were requested: then unreadable processes of other users are not a
    /// failure.
    all: bool,
}

pub(super) fn run(args: &SnapArgs) -> anyhow::Result<u8> {
    if args.list_rules {
        let lints = rule::of_kind(RuleKind::Lint);
        output::emit(args.output.as_deref(), |out| {
            rules::write(out, &lints, args.json)
        })?;
        return Ok(exit::CLEAN);
    }
    // The process is about to exit: dropping many descriptors would take a while.
    let looked = ManuallyDrop::new(read_snapshots(args)?);
    write(args, &looked)?;
    Ok(exit_code(args, &looked))
}

fn write(args: &SnapArgs, looked: &SnapResult) -> anyhow::Result<()> {
    let file = args.output.as_deref();
    let SnapResult {
        snapshots,
        gaps,
        many,
        ..
    } = looked;
    match (args.json, args.fields, args.counts) {
        (true, _, true) => output::emit(file, |out| counts::write_json(out, snapshots, *many)),
        (true, _, false) => output::emit(file, |out| json::write(out, snapshots, gaps, *many)),
        (_, true, _) => {
            // Users that are not in it have no name.
            let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            let names = lsof_fields::parse_passwd(&passwd);
            output::emit(file, |out| {
                lsof_fields::write(out, snapshots, &names, args.null)
            })
        }
        (_, _, true) => output::emit(file, |out| counts::write(out, snapshots)),
        _ => {
            let width = file.map_or_else(crate::terminal::width, |_| None);
            let options = human::Options {
                fds: args.fds,
                targets: args.targets,
                width,
            };
            output::emit_styled(file, |out| human::write(out, snapshots, gaps, &options))
        }
    }
}

fn exit_code(args: &SnapArgs, looked: &SnapResult) -> u8 {
    let in_full = |(snapshot, _): &(Snapshot, Summary)| snapshot.tier > Tier::Radar;
    let unseen = if looked.all {
        !looked.snapshots.iter().any(in_full)
    } else {
        !looked.gaps.is_empty() || !looked.snapshots.iter().all(in_full)
    };
    // --counts needs only the count, which the radar has.
    let counted = args.counts
        && looked
            .snapshots
            .iter()
            .all(|(snapshot, _)| snapshot.count.is_some());
    if unseen && !counted {
        return exit::COULD_NOT_LOOK;
    }
    let failing = args.fail_on.is_some_and(|level| {
        let lints = looked
            .snapshots
            .iter()
            .flat_map(|(_, summary)| &summary.lints);
        lints.into_iter().any(|hit| hit.severity >= level.into())
    });
    if failing { exit::FINDINGS } else { exit::CLEAN }
}

fn read_snapshots(args: &SnapArgs) -> anyhow::Result<SnapResult> {
    if let Some(path) = &args.from {
        let snapshots = super::diff::read_file(path)?;
        let many = snapshots.len() != 1;
        return Ok(SnapResult {
            snapshots: summarized(snapshots),
            gaps: Vec::new(),
            many,
            all: false,
        });
    }
    let Some(selection) = args.select.selection() else {
        return Err(HintedError::usage(
            "no process given",
            "run fdguard snap PID, or use --name NAME, --all or --from FILE",
        )
        .into());
    };
    let probe = Probe::new()?;
    let pids = pick::pick(&probe, &selection)?;
    let options = Options {
        peers: !args.no_peers && !args.counts,
        depth: args.tier.into(),
        ..Options::default()
    };
    let all = selection == Selection::All;
    let many = all || pids.len() != 1 || matches!(selection, Selection::Some { tree: true, .. });
    let reader: &dyn ProcessReader = match args.via {
        ViaArg::Proc => &probe,
        ViaArg::Lsof => &Lsof::default(),
    };
    let results = reader.snapshots(&pids, options);
    let (snapshots, mut gaps) = read_or_gaps(results, |error| all && has_nothing(error))?;
    if all {
        gaps.extend(probe.hidden());
    }
    Ok(SnapResult {
        snapshots: summarized(snapshots),
        gaps,
        many,
        all,
    })
}

/// From this many descriptors on, one snapshot is summarised on two cores.
const LONG: usize = 2048;

fn summarized(snapshots: Vec<Snapshot>) -> Vec<(Snapshot, Summary)> {
    let summaries = match &snapshots[..] {
        [only] => vec![summarized_alone(only)],
        many => workers::map(many, 8, Summary::summarize),
    };
    snapshots.into_iter().zip(summaries).collect()
}

fn summarized_alone(snapshot: &Snapshot) -> Summary {
    let Some(fds) = snapshot.fds.as_deref().filter(|fds| fds.len() >= LONG) else {
        return Summary::summarize(snapshot);
    };
    // The other core has most of the targets, this one everything else.
    let (here, there) = fds.split_at(fds.len() / 8);
    let group = || TargetGroups::new(there);
    let (others, (rest, mut targets)) = workers::beside(Some(group), || {
        let rest = Summary::without_targets(snapshot);
        (rest, TargetGroups::new(here))
    });
    // If no thread could be created, it is done here.
    targets.absorb(others.unwrap_or_else(group));
    Summary {
        targets: Some(targets.into_list()),
        ..rest
    }
}

/// Whether a process without descriptors, or one that ended meanwhile: with `--all` these are not
/// gaps; if they were named, they are.
fn has_nothing(error: &ProbeError) -> bool {
    matches!(
        error,
        ProbeError::KernelThread(_)
            | ProbeError::Zombie { .. }
            | ProbeError::Vanished(_)
            | ProbeError::NoSuchProcess(_)
    )
}
