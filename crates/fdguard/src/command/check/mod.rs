//! `fdguard check`: does this program, or this exercise of a server, return to its baseline?

mod baseline;
mod exercise;
mod explain;
mod family;
mod start;
mod stat;
mod text;
mod whole;

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::ExitStatus;

use fdguard_core::Text;
use fdguard_diagnose::check::{Proof, fails};
use fdguard_trace::{Error, ProcessWhy};

use super::pick;
use super::settings;
use super::trace::{FAILED, NOT_FOUND, NOT_RUNNABLE, SIGNALLED};
use crate::cli::{Annotations, CheckArgs, ReportArgs};
use crate::exit::{self, HintedError};
use crate::output::{self, OutputStream};
use crate::report::problem::ProblemReport;
use crate::report::{annotations, junit, sarif, why};
use crate::terminal;

pub(super) fn run(args: &CheckArgs) -> anyhow::Result<u8> {
    let outcome = check(args);
    outcome.or_else(|error| {
        let said = exit::report(&error);
        let is_ours =
            error.downcast_ref::<HintedError>().is_some() || exit::probe_error(&error).is_some();
        Ok(match error.downcast_ref::<Error>() {
            Some(Error::NotFound { .. }) => NOT_FOUND,
            Some(Error::NotRunnable { .. }) => NOT_RUNNABLE,
            _ if is_ours => said,
            _ => FAILED,
        })
    })
}

fn check(args: &CheckArgs) -> anyhow::Result<u8> {
    if let Some(path) = &args.settings.config {
        must_exist(path, "--config")?;
    }
    if args.explain {
        let text = explain::explain(args)?;
        output::emit(None, |out| Ok(out.write_all(text.as_bytes())?))?;
        return Ok(exit::CLEAN);
    }
    let settings = settings::settings(&args.settings)?;
    // Fail early if a report file cannot be written.
    let mut files = Files::open(&args.reports)?;
    let scenario = args.exercise.scenario.as_deref();
    let is_running = args.exercise.pid.is_some() || !args.exercise.groups.is_empty();
    let plan = match (&args.exercise.exercise, scenario, is_running) {
        (None, None, false) => None,
        (None, None, true) => {
            return Err(HintedError::usage(
                "a running server needs an exercise",
                "add --exercise 'CMD', the command to run in each cycle",
            )
            .into());
        }
        (Some(command), _, _) => Some(exercise::Plan::of_command(args, command)),
        (None, Some(path), _) => {
            must_exist(path, "--scenario")?;
            Some(exercise::Plan::of_file(args, path)?)
        }
    };
    if let Some(path) = &args.baseline {
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        dir.map_or(Ok(()), |dir| must_exist(dir, "--baseline"))?;
        baseline::must_be_readable(path)?;
    }
    let server = pick::pick_root(args.exercise.pid, &args.exercise.groups, "check")?;
    let (mut proof, whys) = match plan {
        None => whole::run(args, &settings)?,
        Some(plan) => exercise::run(args, &plan, &settings, server)?,
    };
    if let Some(path) = &args.baseline {
        baseline::apply(path, &mut proof)?;
    }
    why::add_to_findings(&mut proof.diagnosis.findings, &whys);
    proof.diagnosis.gaps.extend(why::gaps(&whys));
    files.write(&args.reports, &proof, args.why.then_some(&whys))?;
    Ok(exit_code(args, &proof))
}

/// An unreadable file on the command line is a usage error, not a program that could not be traced.
fn must_exist(path: &Path, flag: &str) -> anyhow::Result<()> {
    match std::fs::metadata(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(HintedError::usage(
            format!("{flag} {}: {error}", path.display()),
            "check the path: it is relative to the current directory",
        )
        .into()),
    }
}

/// Report files in addition to the terminal.
struct Files {
    output: Option<OutputStream>,
    junit: Option<OutputStream>,
    sarif: Option<OutputStream>,
}

impl Files {
    fn open(args: &ReportArgs) -> anyhow::Result<Self> {
        let open = |path: &Option<std::path::PathBuf>| {
            path.as_deref()
                .map(|path| OutputStream::open(Some(path)))
                .transpose()
        };
        Ok(Self {
            output: open(&args.output)?,
            junit: open(&args.junit)?,
            sarif: open(&args.sarif)?,
        })
    }

    fn write(
        &mut self,
        args: &ReportArgs,
        proof: &Proof,
        whys: Option<&Vec<ProcessWhy>>,
    ) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        if args.json {
            why::write_json(&mut bytes, proof, whys.map(Vec::as_slice))?;
            bytes.push(b'\n');
        } else {
            text::write(&mut bytes, proof, terminal::width())?;
        }
        match self.output.take() {
            Some(mut stream) => {
                stream.write_all(&anstream::adapter::strip_bytes(&bytes).into_vec())?;
                stream.finish()?;
            }
            None if args.json => anstream::stdout().write_all(&bytes)?,
            None => anstream::stderr().write_all(&bytes)?,
        }
        let words = proof.diagnosis.process.cmdline.iter().map(Text::to_lossy);
        let command = words.collect::<Vec<_>>().join(" ");
        let told = ProblemReport::of(&proof.diagnosis, command, fails);
        if let Some(mut stream) = self.junit.take() {
            junit::write(&mut stream, &told)?;
            stream.finish()?;
        }
        if let Some(mut stream) = self.sarif.take() {
            sarif::write(&mut stream, &told)?;
            stream.finish()?;
        }
        match args.annotations {
            Some(Annotations::Github) => output::emit(None, |out| annotations::write(out, &told)),
            None => Ok(()),
        }
    }
}

/// The program's own failure takes precedence; an impossible judgement is never a success.
fn exit_code(args: &CheckArgs, proof: &Proof) -> u8 {
    match proof.check.status {
        Some(own) if own != 0 => own,
        _ if !proof.check.passed => args.error_exitcode,
        _ if proof.check.blind => exit::COULD_NOT_LOOK,
        _ => exit::CLEAN,
    }
}

/// The exit code as in a shell.
fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => SIGNALLED.saturating_add(u8::try_from(signal).unwrap_or(0)),
        (None, None) => FAILED,
    }
}
