//! `fdguard run`: keep this service alive within a budget of descriptors.

use std::path::Path;

use anyhow::Context as _;
use fdguard_core::located::ConfigMistake;
use fdguard_probe::Probe;
use fdguard_process::input_file;
use fdguard_process::listen::activation;
use fdguard_process::parent::{self, Parent};
use fdguard_process::reserve;
use fdguard_supervise::config::{Overrides, RunSettings, ServiceConfig, explain};
use fdguard_supervise::evidence;
use fdguard_supervise::inject::Injector;
use fdguard_supervise::supervisor::{self, StartRefusal, SupervisorLaunch};
use fdguard_trace::TracedProgram;

use crate::cli::RunArgs;
use crate::exit::{self, HintedError};
use crate::output;

mod become_program;
mod injection;
mod prevention;
mod service_watch;
mod worker;

use injection::InjectedTrace;

/// An error in the file: no restart can help (sysexits: EX_CONFIG).
const CONFIGURATION: u8 = 78;
/// Environment variables that set a flag.
const VARIABLES: [(&str, &str); 1] = [("log_format", "FDGUARD_LOG_FORMAT")];

/// Runs the command.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    // Before anything else is opened: the numbers of passed descriptors are fixed.
    let inherited = activation::from_environment();
    let said = said(args);
    let file = args.config.as_deref().map(read).transpose()?;
    let file = file
        .as_ref()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let settings = RunSettings::resolve(&said, file).map_err(|mistake| mistaken(&mistake))?;
    if args.explain {
        output::emit(
            None,
            |out| Ok(out.write_all(explain(&settings).as_bytes())?),
        )?;
        return Ok(exit::CLEAN);
    }
    if args.exec {
        return become_program::run(&settings);
    }
    let parent = parent::judge(&parent::Facts::read());
    if !args.once && !args.nest {
        refuse_to_nest(&parent)?;
    }
    let injector = injector(args, &settings)?;
    let stderr = rustix::io::dup(rustix::stdio::stderr()).ok();
    let probe = Probe::new()?;
    let launch = SupervisorLaunch {
        probe: &probe,
        settings,
        said,
        parent,
        inherited,
        stderr: stderr.map(reserve::raise),
        injector,
    };
    supervisor::run(launch).map_err(refused)
}

/// What is injected into the programs. A program that cannot be protected is not started: the
/// missing protection would go unnoticed.
fn injector(args: &RunArgs, settings: &RunSettings) -> anyhow::Result<Option<Box<dyn Injector>>> {
    let protection = args.protect.protection();
    if protection.is_some() {
        for service in &settings.services {
            refuse_blind(service)?;
        }
    }
    let is_wanted = args.trace || protection.is_some();
    Ok(is_wanted
        .then(|| -> Box<dyn Injector> { Box::new(InjectedTrace::new(protection, args.once)) }))
}

fn refuse_blind(service: &ServiceConfig) -> anyhow::Result<()> {
    // A program that cannot be run is reported by its start.
    let program = service
        .command
        .first()
        .map(|name| TracedProgram::find(name));
    let Some(Ok(program)) = program else {
        return Ok(());
    };
    let Some(why) = injection::blindness(&program) else {
        return Ok(());
    };
    let name = service.command[0].display();
    let message = format!("cannot protect {name}: {why}");
    let hint = "run it without --protect; it was not started";
    Err(HintedError::look(message, hint).into())
}

fn said(args: &RunArgs) -> Overrides {
    let set = |(key, name): (&'static str, &'static str)| {
        let value = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some((key, name, value))
    };
    Overrides {
        command: args.command.clone(),
        name: args.name.clone(),
        flags: args.said(),
        environment: VARIABLES
            .into_iter()
            .filter_map(set)
            .chain([evidence()])
            .collect(),
        once: args.once,
    }
}

/// Where evidence goes by default.
fn evidence() -> (&'static str, &'static str, String) {
    let (variable, dir) = evidence::default_dir(|name| std::env::var_os(name));
    ("evidence", variable, dir.display().to_string())
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let text = input_file::read_text(path, input_file::WRITTEN).map_err(|error| HintedError {
        message: format!("{name}: {error}"),
        hint: "pass --config a TOML file with [service.NAME] tables".to_owned(),
        code: CONFIGURATION,
    });
    Ok((name, text?))
}

fn mistaken(mistake: &ConfigMistake) -> anyhow::Error {
    let code = if mistake.is_in_file() {
        CONFIGURATION
    } else {
        exit::USAGE
    };
    let hint = "run fdguard run --explain to see the effective values, or fdguard run --help for all options";
    anyhow::Error::new(HintedError {
        message: mistake.to_string(),
        hint: hint.to_owned(),
        code,
    })
}

/// A nested supervisor restarts what the outer one restarts, which is rarely intended.
fn refuse_to_nest(parent: &Parent) -> anyhow::Result<()> {
    let Some(outer) = parent.within.as_ref().filter(|outer| outer.is_running()) else {
        return Ok(());
    };
    let message = format!(
        "already supervised by fdguard run (pid {}, service {})",
        outer.supervisor.pid, outer.service
    );
    let hint = "remove the inner fdguard run, give it --once or --exec, or allow it with --nest";
    Err(HintedError::usage(message, hint)).context("run")
}

fn refused(refusal: StartRefusal) -> anyhow::Error {
    anyhow::Error::new(HintedError {
        message: refusal.message,
        hint: refusal.hint,
        code: refusal.code,
    })
}
