//! One file per verb.

use clap::CommandFactory as _;

use crate::cli::{Cli, Command};
use crate::exit;

#[cfg(feature = "files")]
mod archive;
#[cfg(feature = "trace")]
mod check;
mod diff;
mod doctor;
#[cfg(feature = "supervise")]
mod drill;
mod explain;
#[cfg(feature = "host")]
mod host;
#[cfg(feature = "files")]
mod inspect;
mod pick;
#[cfg(feature = "supervise")]
mod run;
mod settings;
mod snap;
mod top;
#[cfg(feature = "trace")]
mod trace;
mod unit;
mod watch;

/// Runs the command and returns the exit code.
#[must_use]
pub fn dispatch(cli: Cli) -> u8 {
    anstream::ColorChoice::from(cli.color).write_global();
    let outcome = match cli.command {
        Command::Snap(args) => snap::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Watch(args) => watch::run(&args),
        #[cfg(feature = "trace")]
        Command::Trace(args) => trace::run(&args),
        #[cfg(feature = "trace")]
        Command::Check(args) => check::run(&args),
        #[cfg(feature = "supervise")]
        Command::Run(args) => run::run(&args),
        #[cfg(feature = "supervise")]
        Command::Drill(args) => drill::run(&args),
        #[cfg(feature = "files")]
        Command::Inspect(args) => inspect::run(&args),
        #[cfg(feature = "files")]
        Command::Archive(args) => archive::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Unit(args) => unit::run(&args),
        Command::Top(args) => top::run(&args),
        #[cfg(feature = "host")]
        Command::Host(args) => host::run(&args),
        Command::Completions { shell } => completions(shell),
    };
    outcome.unwrap_or_else(|error| exit::report(&error))
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    crate::output::emit(None, |mut out| {
        clap_complete::generate(shell, &mut Cli::command(), "fdguard", &mut out);
        Ok(())
    })?;
    Ok(exit::CLEAN)
}
