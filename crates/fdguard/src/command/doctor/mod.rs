//! `fdguard doctor`: what is wrong with this process?

mod bundle;
mod pieces;
#[cfg_attr(not(feature = "trace"), path = "no_trace.rs")]
mod trace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use fdguard_core::Pid;
use fdguard_core::evidence::Evidence;
use fdguard_core::playbook::Playbook;
use fdguard_core::rule::RuleSettings;
use fdguard_diagnose::doctor::{self, DoctorPlan, DoctorStep};
use fdguard_diagnose::log::OpenLog;
use fdguard_probe::Probe;

use bundle::BundleTarget;
use trace::DoctorTrace;

use super::{pick, settings};
use crate::cli::{DoctorArgs, Selection};
use crate::exit::{self, HintedError};
use crate::progress::{self, ProgressLine};
use crate::report::table::counted;
use crate::report::{doctor as report, html};
use crate::{input, output, terminal};

/// At shorter intervals the looks themselves become the load.
const SHORTEST: Duration = Duration::from_millis(10);

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    // Report every usage error before the watch, not after it.
    let settings = settings::settings(&args.settings)?;
    let patient = patient(args)?;
    let logs = open_logs(args)?;
    let place = args
        .output
        .as_deref()
        .map(BundleTarget::create)
        .transpose()?;
    args.html.as_deref().map(check_place).transpose()?;
    let embedded = Playbook::embedded();
    let progress = ProgressLine::on_stderr();
    let plan = DoctorPlan {
        length: args.watched(),
        every: args.every,
        // The user's own symptoms may contain names, too.
        playbook: match args.redact {
            true => &embedded,
            false => &settings.playbook,
        },
    };
    let trace = DoctorTrace::start(args, patient.pids())?;
    let (material, named_all) = match &patient {
        Patient::Living(probe, pids) => {
            let on_step = |step: DoctorStep<'_>| {
                trace.note(step);
                progress.show(|| step_text(step, pids.len(), args, &settings));
            };
            let material = doctor::gather(probe, pids, plan, logs, &on_step)?;
            let named_all = material.visits.len() == pids.len();
            (material, named_all)
        }
        Patient::Recorded(path) => {
            let replay = input::open_recording(path)?;
            (doctor::from_recording(replay, plan.playbook, logs)?, true)
        }
    };
    let evidence = if args.redact {
        Evidence::redacted(material, &settings)
    } else {
        Evidence::of(material, &settings)
    };
    let nobody = || {
        let hint = "run fdguard top --once to list the processes";
        HintedError::look("no process could be watched", hint)
    };
    let mut evidence = evidence.ok_or_else(nobody)?;
    trace.finish(&mut evidence, &settings)?;
    drop(progress);
    if let Some(path) = args.html.as_deref() {
        output::emit(Some(path), |out| {
            Ok(out.write_all(html::page(&evidence).as_bytes())?)
        })?;
    }
    if let Some(place) = place {
        place.keep(&evidence)?;
    }
    write(args, &evidence)?;
    Ok(exit_code(&evidence, named_all))
}

fn exit_code(evidence: &Evidence, named_all: bool) -> u8 {
    if !evidence.is_complete() || !named_all {
        exit::COULD_NOT_LOOK
    } else if evidence.has_findings() {
        exit::FINDINGS
    } else {
        exit::CLEAN
    }
}

/// Opens all logs, so that a missing one is reported before the watch, not after it.
fn open_logs(args: &DoctorArgs) -> anyhow::Result<Vec<OpenLog>> {
    let open = |path: &PathBuf| {
        let file = input::open(path)?;
        let path = path.clone();
        Ok(OpenLog { path, file })
    };
    args.log.iter().map(open).collect()
}

/// The progress line.
fn step_text(
    step: DoctorStep<'_>,
    processes: usize,
    args: &DoctorArgs,
    settings: &RuleSettings,
) -> String {
    let processes = counted(processes as u64, "process");
    match step {
        DoctorStep::Read => format!("reading {processes}"),
        DoctorStep::Watch(watch) => progress::of_watch(watch, settings, Some(args.watched())),
        DoctorStep::ReadAgain => format!("reading {processes} again"),
    }
}

/// What the doctor examines.
enum Patient<'a> {
    Living(Box<Probe>, Vec<Pid>),
    Recorded(&'a Path),
}

impl Patient<'_> {
    /// The living ones.
    fn pids(&self) -> &[Pid] {
        match self {
            Self::Living(_, pids) => pids,
            Self::Recorded(_) => &[],
        }
    }
}

fn patient(args: &DoctorArgs) -> anyhow::Result<Patient<'_>> {
    if let Some(path) = &args.from {
        return Ok(Patient::Recorded(path));
    }
    let selection = selection(args)?;
    let probe = Probe::new()?;
    let pids = pick::pick(&probe, &selection)?;
    Ok(Patient::Living(Box::new(probe), pids))
}

fn selection(args: &DoctorArgs) -> anyhow::Result<Selection> {
    if args.every < SHORTEST {
        let hint = "use --every 250ms";
        return Err(HintedError::usage("--every must be at least 10ms", hint).into());
    }
    match args.select.selection() {
        Some(Selection::All) => Err(HintedError::usage(
            "doctor does not support --all: name the processes to examine",
            "run fdguard top to find the process near a limit, then fdguard doctor PID",
        )
        .into()),
        Some(selection) => Ok(selection),
        None => Err(HintedError::usage(
            "no process given",
            "run fdguard doctor PID, or use --name NAME or --from FILE",
        )
        .into()),
    }
}

/// Checks that a file can be created there.
fn check_place(path: &Path) -> anyhow::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let may_write = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK);
    may_write
        .map_err(std::io::Error::from)
        .with_context(|| path.display().to_string())?;
    anyhow::ensure!(!path.is_dir(), "{}: is a directory", path.display());
    Ok(())
}

fn write(args: &DoctorArgs, evidence: &Evidence) -> anyhow::Result<()> {
    let bundle = args.output.as_deref();
    if args.json {
        return output::emit(None, |out| report::write_document(out, evidence, bundle));
    }
    let options = report::Options {
        width: terminal::width(),
        bundle,
        hint: true,
    };
    output::emit_styled(None, |out| report::write(out, evidence, &options))
}
