//! `fdguard run`: keep this service alive within a budget of descriptors.

use std::path::Path;

use anyhow::Context as _;
use fdguard_probe::Probe;
use fdguard_process::listen::inherited;
use fdguard_process::parent::{self, Parent};
use fdguard_process::reserve;
use fdguard_supervise::config::{Mistake, Said, Settings, explain};
use fdguard_supervise::supervisor::{self, Launch, Refusal};

use crate::cli::{Level, RunArgs};
use crate::exit::{self, Hinted};
use crate::output;

mod become_program;
mod once;
mod prevented;

/// A mistake in the file: no restart can help (sysexits: EX_CONFIG).
const CONFIGURATION: u8 = 78;
/// Variables that stand for a flag.
const VARIABLES: [(&str, &str); 1] = [("log_format", "FDGUARD_LOG_FORMAT")];

/// Runs the verb.
pub(super) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    if args.once && args.protect.protect.is_some() {
        return once::run(args);
    }
    if args
        .protect
        .protect
        .is_some_and(|level| level != Level::Disabled)
    {
        let message = "--protect needs --once: a service that is restarted is not protected yet";
        return Err(Hinted::usage(message, "fdguard run --once --protect -- CMD").into());
    }
    // Before anything else is opened: their numbers are promised.
    let inherited = inherited::take();
    let said = said(args);
    let file = args.config.as_deref().map(read).transpose()?;
    let file = file
        .as_ref()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let settings = Settings::of(&said, file).map_err(|mistake| mistaken(&mistake))?;
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
    let stderr = rustix::io::dup(rustix::stdio::stderr()).ok();
    let probe = Probe::new()?;
    let launch = Launch {
        probe: &probe,
        settings,
        said,
        parent,
        inherited,
        stderr: stderr.map(reserve::raise),
        injector: None,
    };
    supervisor::run(launch).map_err(refused)
}

fn said(args: &RunArgs) -> Said {
    let set = |(key, name): (&'static str, &'static str)| {
        let value = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some((key, name, value))
    };
    Said {
        command: args.command.clone(),
        name: args.name.clone(),
        flags: args.said(),
        environment: VARIABLES.into_iter().filter_map(set).collect(),
        once: args.once,
    }
}

fn read(path: &Path) -> anyhow::Result<(String, String)> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Hinted {
        message: format!("{name}: {error}"),
        hint: "--config takes a file with [service.NAME] in it".to_owned(),
        code: CONFIGURATION,
    });
    Ok((name, text?))
}

fn mistaken(mistake: &Mistake) -> anyhow::Error {
    let code = if mistake.is_in_file() {
        CONFIGURATION
    } else {
        exit::USAGE
    };
    let hint = "fdguard run --explain shows what holds; fdguard run --help what there is";
    anyhow::Error::new(Hinted {
        message: mistake.to_string(),
        hint: hint.to_owned(),
        code,
    })
}

/// A supervisor below a supervisor restarts what the other restarts: nobody wants that by accident.
fn refuse_to_nest(parent: &Parent) -> anyhow::Result<()> {
    let Some(outer) = parent.within.as_ref().filter(|outer| outer.is_running()) else {
        return Ok(());
    };
    let message = format!(
        "this is already kept alive by fdguard run (pid {}, service {})",
        outer.pid, outer.service
    );
    let hint = "leave out the inner one, use --once or --exec for it, or say --nest";
    Err(Hinted::usage(message, hint)).context("run")
}

fn refused(refusal: Refusal) -> anyhow::Error {
    anyhow::Error::new(Hinted {
        message: refusal.message,
        hint: refusal.hint,
        code: refusal.code,
    })
}
