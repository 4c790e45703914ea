//! `fdguard trace --report PID`: what a traced program holds now, from another terminal.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::{Diagnosis, WatchEnd};
use fdguard_core::finding::Finding;
use fdguard_core::lint::Severity;
use fdguard_core::origin::Origin;
use fdguard_core::proof::Clearance;
use fdguard_core::rule::Settings;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Pid, Text};
use fdguard_probe::{Error as ProbeError, Probe};
use fdguard_trace::{Error, Observed, Tables, monotonic};
use serde::Serialize;

use super::joined::{About, Joined, Origins};
use super::{PATIENCE, figures, text, view};
use crate::cli::TraceArgs;
use crate::command::{clearing, settings};
use crate::exit::{self, HintedError};
use crate::output;
use crate::report::diagnosis;
use crate::report::style::HEADING;
use crate::terminal::{self, sanitize_str};
use crate::watching::{LiveWatch, OnSignal, WatchPlan, WatchProgress};

/// What to do with a process that nobody traces.
const LAUNCH: &str =
    "launch it with fdguard trace -- COMMAND, or run fdguard watch PID for class, target and rate";

/// What the sites of a process stand under.
const OPEN_NOW: &str = "open now";

pub(super) fn run(args: &TraceArgs, pid: u32) -> anyhow::Result<u8> {
    let settings = settings::settings(&args.settings)?;
    let probe = Probe::new()?;
    let observed = find(args, pid)?;
    let mut live = begin(args, &probe, &observed)?;
    let looked = if args.live {
        view::show(&mut live, &observed)?
    } else {
        watch(args, &mut live, &observed)?
    };
    let is_seen = args.live || args.length.is_some() || running(live.watch()).next().is_some();
    if !is_seen {
        return Err(ProbeError::Vanished(observed.pid()).into());
    }
    let mut joined = looked.joined(&observed, live.watch(), &settings)?;
    let clearance = Clearance::new(&args.allow, &settings);
    clearing::clear(&mut joined.diagnosis, &clearance);
    if args.json {
        output::emit(args.output.as_deref(), |out| {
            serde_json::to_writer(&mut *out, &Document::of(&joined, live.watch()))?;
            Ok(out.write_all(b"\n")?)
        })?;
    } else {
        output::emit_styled(args.output.as_deref(), |out| {
            write(out, args, &joined, live.watch())
        })?;
    }
    Ok(exit_code(&joined.diagnosis))
}

/// The trace of a process; else one clear line.
pub(super) fn find(args: &TraceArgs, pid: u32) -> anyhow::Result<Observed> {
    let is_attach = args.report.is_none();
    Observed::find(pid).map_err(|error| match error {
        Error::NoProcess { pid } => ProbeError::NoSuchProcess(pid).into(),
        Error::Denied { .. } => {
            let hint = "run this as the process's owner, or with sudo";
            HintedError::look(error.to_string(), hint).into()
        }
        Error::Untraced { blind, .. } => {
            let mut message = error.to_string();
            if is_attach {
                message.push_str(", and fdguard cannot attach to a running process yet");
            }
            if let Some(blind) = blind {
                message.push_str(": ");
                message.push_str(blind.why());
            }
            HintedError::look(message, blind.map_or(LAUNCH, fdguard_trace::Blind::remedy)).into()
        }
        other => other.into(),
    })
}

/// The same watch as the launching fdguard's, from outside.
pub(super) fn begin<'p>(
    args: &TraceArgs,
    probe: &'p Probe,
    observed: &Observed,
) -> anyhow::Result<LiveWatch<'p>> {
    let plan = |pids: Vec<u32>| WatchPlan {
        pids,
        name: None,
        tree: true,
        every: args.every,
        jitter: Duration::ZERO,
        length: args.length,
        on_signal: OnSignal::End,
    };
    // A child may end just now; the process itself must be there.
    LiveWatch::start(probe, plan(observed.pids()?))
        .or_else(|_| LiveWatch::start(probe, plan(vec![observed.pid()])))
}

/// The tables around the last look.
pub(super) struct Looked {
    before: Tables,
    after: Tables,
    /// What is older was seen by that look, if it was open.
    since: u64,
    /// When the tables were read last.
    read: u64,
}

impl Looked {
    /// Before the first look.
    pub(super) fn at(observed: &Observed) -> anyhow::Result<Self> {
        let read = monotonic();
        let tables = observed.tables()?;
        Ok(Self {
            before: tables.clone(),
            after: tables,
            since: read,
            read,
        })
    }

    /// After another look. When the program has ended its tables may be gone: then the last ones count.
    pub(super) fn again(&mut self, observed: &Observed) {
        let read = monotonic();
        if let Ok(tables) = observed.tables() {
            self.before = std::mem::replace(&mut self.after, tables);
            self.since = std::mem::replace(&mut self.read, read);
        }
    }

    /// The tables after it.
    pub(super) fn tables(&self) -> &Tables {
        &self.after
    }

    fn joined(
        &self,
        observed: &Observed,
        watch: &Watch,
        settings: &Settings,
    ) -> anyhow::Result<Joined> {
        let Some(diagnosis) = watch.diagnosis(settings) else {
            return Err(ProbeError::NoSuchProcess(observed.pid()).into());
        };
        let pids = running(watch).map(|subject| subject.process.pid);
        let untold = pids.filter(|pid| self.after.of(*pid).is_none());
        let about = About {
            pid: observed.pid(),
            blind: None,
            became: untold.map(|pid| (pid, observed.became(pid))).collect(),
            told: BTreeSet::new(),
        };
        let tables = (&self.before, &self.after);
        Ok(Joined::watched(
            tables, self.since, &about, watch, diagnosis,
        ))
    }
}

/// One look, or as many as `--for` asks.
fn watch(
    args: &TraceArgs,
    live: &mut LiveWatch<'_>,
    observed: &Observed,
) -> anyhow::Result<Looked> {
    let mut looked = Looked::at(observed)?;
    loop {
        let progress = live.advance(Instant::now() + PATIENCE)?;
        live.take_entries();
        if args.length.is_none() && progress == WatchProgress::Looked {
            live.stop(WatchEnd::TimeUp)?;
        }
        looked.again(observed);
        if live.watch().ended().is_some() {
            return Ok(looked);
        }
    }
}

fn write(
    out: &mut dyn Write,
    args: &TraceArgs,
    joined: &Joined,
    watch: &Watch,
) -> anyhow::Result<()> {
    // One look tells no verdict.
    let mut told = joined.diagnosis.clone();
    if args.length.is_none() && !args.live {
        told.processes.clear();
    }
    for subject in running(watch) {
        let origins = joined.processes.iter().find(|one| is_of(one, subject));
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

fn is_of(origins: &Origins, subject: &WatchedProcess) -> bool {
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

/// A diagnosis, with what is open now.
#[derive(Debug, Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    diagnosis: &'a Diagnosis,
    accounts: Vec<Account<'a>>,
    sites: Vec<SiteNow<'a>>,
}

/// Where the descriptors of a process come from. They add up.
#[derive(Debug, Serialize)]
struct Account<'a> {
    pid: Pid,
    comm: &'a Text,
    /// Unknown where they could not be listed.
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
}

/// A descriptor of a site, for whoever has a number in hand and asks for its line.
#[derive(Debug, Serialize)]
struct OpenNow {
    fd: u32,
    generation: u32,
    thread: u32,
    age_seconds: f64,
}

impl<'a> Document<'a> {
    fn of(joined: &'a Joined, watch: &'a Watch) -> Self {
        let account = |subject| {
            let mut processes = joined.processes.iter();
            Account::of(subject, processes.find(|one| is_of(one, subject)))
        };
        let sites = joined.processes.iter().flat_map(|process| {
            let now = |site| SiteNow::of(site, process);
            process.sites.iter().map(now)
        });
        Self {
            diagnosis: &joined.diagnosis,
            accounts: running(watch).map(account).collect(),
            sites: sites.collect(),
        }
    }
}

impl<'a> SiteNow<'a> {
    fn of(site: &fdguard_trace::Site, process: &'a Origins) -> Self {
        let what = figures::what(site, process);
        Self {
            pid: process.pid,
            comm: &process.comm,
            class: what.map(|(class, _)| class),
            target: what.and_then(|(_, target)| target),
            how: figures::how(site),
            rate_per_second: figures::rate(site).map(|rate| (rate * 1e3).round() / 1e3),
            fds: OpenNow::all(site, process.now),
            origin: site.origin(process.now),
        }
    }
}

impl OpenNow {
    fn all(site: &fdguard_trace::Site, now: u64) -> Vec<Self> {
        let of = |open: &fdguard_trace::Open| Self {
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
    fn of(subject: &'a WatchedProcess, origins: Option<&Origins>) -> Self {
        let timeline = &subject.timeline;
        let listed = timeline.is_listed().then(|| timeline.live().len() as u64);
        // What was opened or closed since the look is counted as the table has it.
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
        format!("{live} descriptors: {traced} traced{inherited}, {unseen} opened untraced")
    }
}
