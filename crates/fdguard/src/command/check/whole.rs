//! A program that is run to its end under the tracer.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use fdguard_core::Class;
use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::origin::Origin;
use fdguard_core::proof::{Judged, Remains};
use fdguard_core::rule::Settings;
use fdguard_core::watch::Watch;
use fdguard_probe::Probe;
use fdguard_trace::{Options, Symbols, Traced};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::baseline;
use super::ended::{self, Ending};
use super::family::Family;
use super::proof::{self, Evidence, Proof};
use super::{code_of, proof::fails, started};
use crate::cli::CheckArgs;
use crate::command::trace::{self, Watched, joined::Joined};
use crate::watching::Live;

/// Runs it and judges what it left.
pub(super) fn run(args: &CheckArgs, settings: &Settings) -> anyhow::Result<Proof> {
    let probe = Probe::new()?;
    let mut family = Family::begin()?;
    let options = Options::default().keeping_ended();
    let mut traced = limited(args.limit, || Ok(Traced::launch(&args.command, options)?))?;
    family.follow(traced.pid())?;
    let pace = (args.every, args.length.or(args.soak));
    let watched = trace::watch(pace, &probe, &mut traced)?;
    let status = match watched.status {
        Some(status) => status,
        // Two signals to leave: the program is ours, and does not outlive its check.
        None => {
            traced.signal(Signal::KILL)?;
            traced.wait()?
        }
    };
    conclude(args, settings, (&traced, status), &watched, &mut family)
}

/// Judges what is left of a program that has ended.
fn conclude(
    args: &CheckArgs,
    settings: &Settings,
    (traced, status): (&Traced, ExitStatus),
    watched: &Watched<'_>,
    family: &mut Family,
) -> anyhow::Result<Proof> {
    let leave = &args.leave;
    let processes = started::left(family, leave, &leave.allow_process, traced);
    let joined = Joined::of(watched, traced, &args.command, settings)?;
    let (mut diagnosis, watch) = (joined.diagnosis, watched.live.as_ref().map(Live::watch));
    let grown: Vec<_> = diagnosis
        .findings
        .iter()
        .filter(|one| fails(one))
        .cloned()
        .collect();
    let cut_off: Vec<u32> = processes.iter().map(|one| one.pid).collect();
    let tables = traced.tables()?;
    let root = diagnosis.process.clone();
    let ending = Ending {
        watch,
        looked: watched.looked,
        tables: &tables,
        at_work: &watched.tables,
        root: (traced.pid(), status.signal().is_some() || watched.was_ended),
        cut_off: &cut_off,
        grown: &grown,
        strict: leave.strict,
        comm: &|pid| {
            if pid == root.pid {
                root.comm.clone()
            } else {
                family.comm(pid)
            }
        },
    };
    let mut remains = ended::remains(&ending);
    let went = ended::went(&ending, &remains);
    let judged: Vec<&Remains> = remains.iter().chain(&went).collect();
    for finding in &mut diagnosis.findings {
        acquit(finding, &judged);
    }
    remains.extend(went.into_iter().filter(|one| one.judged.fails()));
    diagnosis.verdict = verdict(&diagnosis, &remains);
    let is_untold = tables.of(traced.pid()).is_none();
    let blind = is_untold && !watch.is_some_and(|watch| has_history(watch, traced.pid()));
    if blind {
        diagnosis.gaps.push(proof::too_short());
    } else if !is_untold {
        // That nobody looked while it ran does not matter where its end is known.
        diagnosis.gaps.retain(|gap| gap.what != "whether it leaks");
    }
    let opinion = diagnosis.processes.iter().find(|one| one.pid == root.pid);
    let classes = opinion.and_then(|one| one.classes.as_ref());
    let held = classes
        .map(|classes| baseline::count(classes.iter().map(|one| (one.class.clone(), one.count))));
    let evidence = Evidence {
        diagnosis,
        remains,
        piles: traced.child_piles(&mut Symbols::new(), true),
        processes,
        status: Some(own_code(watched, status)),
        exercises: Vec::new(),
        held,
        blind,
    };
    Ok(Proof::of(evidence, &leave.allow, settings))
}

/// The program's own exit code; one that we ended when its time was up did not fail.
fn own_code(watched: &Watched<'_>, status: ExitStatus) -> u8 {
    if watched.was_ended {
        0
    } else {
        code_of(status)
    }
}

/// What the line's own account shows to be a cache that replaces its oldest, or a pool that is full, does not count as growth.
fn acquit(finding: &mut Finding, remains: &[&Remains]) {
    let family = finding.class.as_ref().map(Class::family);
    let same = |one: &&Remains| {
        let culprit = |origin: Option<&Origin>| origin.and_then(|origin| origin.culprit.clone());
        one.pid == finding.pid
            && one.class.as_ref().map(Class::family) == family
            && culprit(one.origin.as_ref()) == culprit(finding.origin.as_ref())
    };
    let mut about = remains.iter().copied().filter(same).peekable();
    if fails(finding)
        && about.peek().is_some()
        && about.all(|one| matches!(one.judged, Judged::Rolling | Judged::Held))
    {
        finding.severity = Severity::Info;
        finding
            .why
            .push_str("; but the line's own account shows a cache that replaces its oldest, or a pool that is full");
    }
}

/// What is thought of all of it, after the lines' own accounts were heard.
fn verdict(diagnosis: &Diagnosis, remains: &[Remains]) -> Verdict {
    let watched = diagnosis.verdict;
    if remains.iter().any(|one| one.judged == Judged::Grew) {
        return Verdict::Leaking;
    }
    let is_rising = matches!(watched, Verdict::Leaking | Verdict::Growing);
    let is_told = |rule: &str| matches!(rule, "leak" | "growth");
    let mut rising = diagnosis.findings.iter().filter(|one| is_told(&one.rule));
    if is_rising && !rising.any(|one| one.severity >= Severity::Warning || one.cleared.is_some()) {
        return Verdict::Bounded;
    }
    watched
}

fn has_history(watch: &Watch, pid: u32) -> bool {
    let mut subjects = watch.subjects();
    subjects.any(|one| one.process.pid == pid && ended::has_history(one))
}

/// Does this with another soft limit of descriptors, which a program that is started meanwhile inherits.
pub(super) fn limited<T>(
    limit: Option<u64>,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(limit) = limit else {
        return work();
    };
    let before = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(limit),
            maximum: before.maximum,
        },
    )?;
    let done = work();
    setrlimit(Resource::Nofile, before)?;
    done
}
