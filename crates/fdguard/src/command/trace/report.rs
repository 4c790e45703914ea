//! `fdguard trace --report PID`: what a traced program holds now, from another terminal.

use std::io::Write;
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::{Diagnosis, WatchEnd};
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::origin::Origin;
use fdguard_core::proof::Clearance;
use fdguard_core::rule::RuleSettings;
use fdguard_core::units::counted;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Pid, Text};
use fdguard_diagnose::clearing;
use fdguard_diagnose::trace::{self, ProcessSites, TraceReport};
use fdguard_diagnose::watching::{LiveWatch, OnSignal, WatchPlan, WatchProgress};
use fdguard_probe::{Error as ProbeError, Probe};
use fdguard_trace::{Error, HeapWatch, ObservedTrace, ProcessWhy, StateParts, TraceSession};
use serde::Serialize;

use super::outputs::Outputs;
use super::{PATIENCE, text, view};
use crate::cli::TraceArgs;
use crate::command::settings;
use crate::exit::{self, HintedError};
use crate::output;
use crate::report::style::HEADING;
use crate::report::{diagnosis, why};
use crate::terminal::{self, sanitize_str};

/// The advice for a process that is not traced.
const LAUNCH: &str =
    "attach to it with fdguard trace PID, or launch it with fdguard trace -- COMMAND";

/// The heading above the sites of a process.
const OPEN_NOW: &str = "open now";

pub(super) fn run(args: &TraceArgs, pid: u32) -> anyhow::Result<u8> {
    let settings = settings::settings(&args.settings)?;
    let probe = Probe::new()?;
    let observed = find(pid)?;
    let outputs = Outputs::open(args)?;
    let mut live = start_watch(args, &probe, &observed)?;
    let mut session = observed.session();
    if args.live {
        view::show(&mut live, &mut session)?;
    } else {
        watch(args, &mut live, &mut session)?;
    }
    let is_seen = args.live || args.length.is_some() || running(live.watch()).next().is_some();
    if !is_seen {
        return Err(ProbeError::Vanished(observed.pid()).into());
    }
    let whys = match args.why {
        true => holders(&mut session)?,
        false => Vec::new(),
    };
    let mut report = joined(&mut session, observed.pid(), live.watch(), &settings)?;
    report.diagnosis.gaps.extend(why::gaps(&whys));
    let clearance = Clearance::new(&args.allow, &settings);
    clearing::clear(&mut report.diagnosis, &clearance);
    if args.json {
        output::emit(args.output.as_deref(), |out| {
            let document = Document::of(&report, live.watch());
            let mut bytes = Vec::new();
            why::write_json(&mut bytes, &document, args.why.then_some(&whys))?;
            out.write_all(&bytes)?;
            Ok(out.write_all(b"\n")?)
        })?;
    } else {
        output::emit_styled(args.output.as_deref(), |out| {
            write(out, args, &report, live.watch())?;
            why::write(out, &whys, terminal::width())
        })?;
    }
    outputs.write(&report, &whys)?;
    Ok(exit_code(&report.diagnosis))
}

/// Which objects hold what its processes have open. The program's own fdguard has made no walk that
/// this one knows of: plain numbers are not decided.
fn holders(session: &mut TraceSession) -> anyhow::Result<Vec<ProcessWhy>> {
    let mut watch = HeapWatch::default();
    session.poll()?;
    watch.finish(session);
    Ok(watch.answers())
}

/// The trace of a process, or a one-line error.
pub(super) fn find(pid: u32) -> anyhow::Result<ObservedTrace> {
    ObservedTrace::find(pid).map_err(|error| match error {
        Error::NoProcess { pid } => ProbeError::NoSuchProcess(pid).into(),
        Error::Denied { .. } => {
            let hint = "run this as the process's owner, or with sudo";
            HintedError::look(error.to_string(), hint).into()
        }
        Error::Untraced { blind, .. } => {
            let mut message = error.to_string();
            if let Some(blind) = blind {
                message.push_str(": ");
                message.push_str(blind.why());
            }
            HintedError::look(
                message,
                blind.map_or(LAUNCH, fdguard_trace::BlindReason::remedy),
            )
            .into()
        }
        other => other.into(),
    })
}

/// The same watch as the launching fdguard's, from outside.
pub(super) fn start_watch<'p>(
    args: &TraceArgs,
    probe: &'p Probe,
    observed: &ObservedTrace,
) -> anyhow::Result<LiveWatch<'p>> {
    let plan = |pids: Vec<u32>| WatchPlan {
        pids,
        name: None,
        groups: Vec::new(),
        tree: true,
        every: args.every,
        jitter: Duration::ZERO,
        length: args.length,
        on_signal: OnSignal::End,
    };
    // A child may end right now; the process itself must exist.
    let whole = LiveWatch::start(probe, plan(observed.pids()?));
    Ok(whole.or_else(|_| LiveWatch::start(probe, plan(vec![observed.pid()])))?)
}

/// The report about what is running.
fn joined(
    session: &mut TraceSession,
    root: Pid,
    watch: &Watch,
    settings: &RuleSettings,
) -> anyhow::Result<TraceReport> {
    let Some(diagnosis) = watch.diagnosis(settings) else {
        return Err(ProbeError::NoSuchProcess(root).into());
    };
    session.examine(running(watch).map(|subject| subject.process.pid));
    let (before, after) = session.states_around(StateParts::OBSERVED);
    Ok(trace::observed((&before, &after), root, watch, diagnosis))
}

/// Takes one look, or looks for as long as `--for` requests.
fn watch(
    args: &TraceArgs,
    live: &mut LiveWatch<'_>,
    session: &mut TraceSession,
) -> anyhow::Result<()> {
    session.poll()?;
    loop {
        let progress = live.advance(Instant::now() + PATIENCE)?;
        live.take_entries();
        if args.length.is_none() && progress == WatchProgress::Looked {
            live.stop(WatchEnd::TimeUp)?;
        }
        // The tables of an ended program may be gone: then the last ones count.
        drop(session.poll());
        if live.watch().ended().is_some() {
            return Ok(());
        }
    }
}

fn write(
    out: &mut dyn Write,
    args: &TraceArgs,
    report: &TraceReport,
    watch: &Watch,
) -> anyhow::Result<()> {
    // A single look yields no verdict.
    let mut told = report.diagnosis.clone();
    if args.length.is_none() && !args.live {
        told.processes.clear();
    }
    for subject in running(watch) {
        let origins = report.processes.iter().find(|one| is_of(one, subject));
        let account = Account::of(subject, origins);
        let comm = account.comm.to_lossy();
        let head = format!("in {} (pid {}):", sanitize_str(&comm), account.pid);
        let text = account.text();
        let is_wide = terminal::width()
            .is_some_and(|width| OPEN_NOW.len() + head.len() + text.len() + 2 > width);
        let between = if is_wide { "\n  " } else { " " };
        writeln!(out, "{HEADING}{OPEN_NOW}{HEADING:#} {head}{between}{text}")?;
        if let Some(origins) = origins {
            text::write_sites(out, origins)?;
        }
    }
    diagnosis::write(out, &told, terminal::width())
}

fn running(watch: &Watch) -> impl Iterator<Item = &WatchedProcess> {
    watch.subjects().filter(|subject| subject.gone.is_none())
}

fn is_of(origins: &ProcessSites, subject: &WatchedProcess) -> bool {
    origins.pid == subject.process.pid
}

fn exit_code(found: &Diagnosis) -> u8 {
    let counts =
        |finding: &Finding| finding.severity >= Severity::Warning && finding.cleared.is_none();
    if found.findings.iter().any(counts) {
        exit::FINDINGS
    } else {
        exit::CLEAN
    }
}

/// A diagnosis and the currently open descriptors.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    accounts: Vec<Account<'a>>,
    sites: Vec<SiteNow<'a>>,
}

/// Where the descriptors of a process come from. The counts add up.
#[derive(Debug, Serialize)]
struct Account<'a> {
    pid: Pid,
    comm: &'a Text,
    /// `None` if they could not be listed.
    live: Option<u64>,
    traced: Option<u64>,
    inherited: Option<u64>,
    unseen: Option<u64>,
}

/// A site, with what it opens.
#[derive(Debug, Serialize)]
struct SiteNow<'a> {
    pid: Pid,
    comm: &'a str,
    class: Option<&'a Class>,
    target: Option<&'a Text>,
    how: &'static str,
    rate_per_second: Option<f64>,
    fds: Vec<OpenNow>,
    #[serde(flatten)]
    origin: Origin,
    /// Filled in with the answer of the line.
    why: Option<()>,
}

/// A descriptor of a site, to look up the line for a number.
#[derive(Debug, Serialize)]
struct OpenNow {
    fd: u32,
    generation: u32,
    thread: u32,
    age_seconds: f64,
}

impl<'a> Document<'a> {
    fn of(report: &'a TraceReport, watch: &'a Watch) -> Self {
        let account = |subject| {
            let mut processes = report.processes.iter();
            Account::of(subject, processes.find(|one| is_of(one, subject)))
        };
        let sites = report.processes.iter().flat_map(|process| {
            let now = |site| SiteNow::of(site, process);
            process.sites.iter().map(now)
        });
        Self {
            diagnosis: &report.diagnosis,
            accounts: running(watch).map(account).collect(),
            sites: sites.collect(),
        }
    }
}

impl<'a> SiteNow<'a> {
    fn of(site: &fdguard_trace::Site, process: &'a ProcessSites) -> Self {
        let what = process.class_and_target(site);
        Self {
            pid: process.pid,
            comm: &process.comm,
            class: what.map(|(class, _)| class),
            target: what.and_then(|(_, target)| target),
            how: site
                .open
                .first()
                .map_or("", |open| open.descriptor.call.name()),
            rate_per_second: site.per_second().map(|rate| (rate * 1e3).round() / 1e3),
            fds: OpenNow::all(site, process.now),
            origin: site.origin(process.now),
            why: None,
        }
    }
}

impl OpenNow {
    fn all(site: &fdguard_trace::Site, now: u64) -> Vec<Self> {
        let of = |open: &fdguard_trace::OpenFd| Self {
            fd: open.fd,
            generation: open.descriptor.generation,
            thread: open.descriptor.tid,
            age_seconds: open.age(now),
        };
        let mut fds: Vec<Self> = site.open.iter().map(of).collect();
        fds.sort_by_key(|one| one.fd);
        fds
    }
}

impl<'a> Account<'a> {
    fn of(subject: &'a WatchedProcess, origins: Option<&ProcessSites>) -> Self {
        let timeline = &subject.timeline;
        let listed = timeline.is_listed().then(|| timeline.live().len() as u64);
        // Descriptors opened or closed since the look count as in the table.
        let known = origins.filter(|_| listed.is_some()).map(|one| {
            let traced: usize = one.sites.iter().map(|site| site.open.len()).sum();
            (traced as u64, one.inherited as u64, one.unknown as u64)
        });
        Self {
            pid: subject.process.pid,
            comm: &subject.process.comm,
            live: known.map_or(listed, |(traced, inherited, unseen)| {
                Some(traced + inherited + unseen)
            }),
            traced: known.map_or(listed.map(|_| 0), |(traced, _, _)| Some(traced)),
            inherited: known.map(|(_, inherited, _)| inherited),
            unseen: known.map_or(listed, |(_, _, unseen)| Some(unseen)),
        }
    }

    /// `119 descriptors: 112 traced, 3 inherited, 4 opened untraced`.
    fn text(&self) -> String {
        let Some(live) = self.live else {
            return "no permission to list its descriptors".to_owned();
        };
        let traced = self.traced.unwrap_or(0);
        let inherited = self
            .inherited
            .map_or(String::new(), |n| format!(", {n} inherited"));
        let unseen = self.unseen.unwrap_or(0);
        let live = counted(live, "descriptor");
        format!("{live}: {traced} traced{inherited}, {unseen} opened untraced")
    }
}
