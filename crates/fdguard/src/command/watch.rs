//! `fdguard watch`: is it leaking, which class, how fast, when does it hit which wall?

use std::io::Write as _;
use std::time::{Duration, Instant};

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::finding::Finding;
use fdguard_core::judge::Verdict;
use fdguard_core::lint::Severity;
use fdguard_core::recording::Entry;
use fdguard_core::rule::Settings;
use fdguard_core::timeline::Look;
use fdguard_core::watch::{Subject, Watch};
use fdguard_core::{Pid, Text};
use fdguard_probe::Probe;
use serde::Serialize;

use super::{pick, settings};
use crate::cli::{Selection, WatchArgs};
use crate::exit::{self, Hinted};
use crate::output::Stream;
use crate::report::{diagnosis, state_line};
use crate::terminal;
use crate::watching::{Live, Plan, Progress};

/// Between two looks when nobody says how long to watch, and by how much that differs.
const LONG: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(30));
/// Looks that a watch of known length should have.
const LOOKS: u32 = 80;
/// And the shortest time between them.
const SHORTEST: Duration = Duration::from_millis(250);

/// How long to wait at most before looking at the clock again.
const PATIENCE: Duration = Duration::from_secs(3600);

pub(super) fn run(args: &WatchArgs) -> anyhow::Result<u8> {
    let settings = settings::settings(&args.settings)?;
    let probe = Probe::new()?;
    let plan = plan(args, &probe)?;
    let mut stream = Stream::open(args.output.as_deref())?;
    let mut live = Live::begin(&probe, plan)?;
    loop {
        let progress = live.advance(Instant::now() + PATIENCE)?;
        for entry in live.take_entries() {
            tell(args, live.watch(), &entry, &settings, &mut stream)?;
        }
        if progress == Progress::Ended {
            break;
        }
    }
    finish(args, live.watch(), &settings, stream)
}

/// A line for each look, where lines were asked for.
fn tell(
    args: &WatchArgs,
    watch: &Watch,
    entry: &Entry,
    settings: &Settings,
    stream: &mut Stream,
) -> anyhow::Result<()> {
    let Entry::Look { id, look } = entry else {
        return Ok(());
    };
    let Some(subject) = watch.subjects().find(|subject| subject.id == *id) else {
        return Ok(());
    };
    if args.json {
        if args.samples {
            serde_json::to_writer(&mut *stream, &Sample::of(subject, look))?;
            stream.write_all(b"\n")?;
            stream.flush()?;
        }
        return Ok(());
    }
    let line = state_line::line(args.format, subject, &subject.opinion(settings));
    writeln!(stream, "{line}")?;
    Ok(stream.flush()?)
}

/// The verdict, and the exit code that goes with it.
fn finish(
    args: &WatchArgs,
    watch: &Watch,
    settings: &Settings,
    mut stream: Stream,
) -> anyhow::Result<u8> {
    let Some(found) = watch.diagnosis(settings) else {
        return Err(Hinted::look("no process was seen", "fdguard top lists them").into());
    };
    if args.json {
        serde_json::to_writer(&mut stream, &found)?;
        stream.write_all(b"\n")?;
    } else {
        let mut styled = Vec::new();
        diagnosis::write(&mut styled, &found, terminal::width())?;
        let colours = args.output.is_none() && is_coloured();
        if colours {
            stream.write_all(&styled)?;
        } else {
            stream.write_all(&anstream::adapter::strip_bytes(&styled).into_vec())?;
        }
    }
    stream.finish()?;
    Ok(exit_code(&found))
}

fn is_coloured() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never
}

/// Who saw only a count and found nothing has not looked.
fn exit_code(found: &Diagnosis) -> u8 {
    let counts = |finding: &Finding| finding.severity >= Severity::Warning;
    let is_blind = found.coverage.live_fds.is_none();
    if found.findings.iter().any(counts) {
        exit::FINDINGS
    } else if is_blind || found.verdict == Verdict::Unknown {
        exit::COULD_NOT_LOOK
    } else {
        exit::CLEAN
    }
}

/// One look as a line of JSON.
#[derive(Debug, Serialize)]
struct Sample<'a> {
    schema: &'static str,
    at: f64,
    pid: Pid,
    count: Option<u64>,
    highest: Option<u64>,
    opened: Option<usize>,
    closed: Option<usize>,
    comm: &'a Text,
}

impl<'a> Sample<'a> {
    fn of(subject: &'a Subject, look: &Look) -> Self {
        let table = look.table.as_ref();
        Self {
            schema: "fdguard.sample/1",
            at: look.at,
            pid: subject.process.pid,
            count: look.count,
            highest: subject.timeline.highest().map(u64::from),
            opened: table.map(|table| table.opened.len()),
            closed: table.map(|table| table.closed.len()),
            comm: &subject.process.comm,
        }
    }
}

/// What to watch and how often.
fn plan(args: &WatchArgs, probe: &Probe) -> anyhow::Result<Plan> {
    let Some(Selection::Some { pids, name, tree }) = args.select.selection() else {
        return Err(Hinted::usage(
            "no process named",
            "fdguard watch PID, or --name NAME, --from FILE; `fdguard top` watches all of them",
        )
        .into());
    };
    // Says at once when nobody has the name.
    let selection = Selection::Some {
        pids: Vec::new(),
        name: name.clone(),
        tree: false,
    };
    if name.is_some() {
        pick::pick(probe, &selection)?;
    }
    let every = match (args.every, args.length) {
        (Some(every), _) => every,
        (None, Some(length)) => (length / LOOKS).clamp(SHORTEST, LONG.0),
        (None, None) => LONG.0,
    };
    let tenth = if every >= Duration::from_secs(60) {
        every / 10
    } else {
        Duration::ZERO
    };
    Ok(Plan {
        pids,
        name,
        tree,
        every,
        jitter: args.jitter.unwrap_or(tenth).min(every),
        length: args.length,
    })
}
