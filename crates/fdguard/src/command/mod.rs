//! One file per verb.

use clap::CommandFactory as _;

use crate::cli::{Cli, Command};
use crate::exit;

mod archive;
mod check;
mod clearing;
mod diff;
mod doctor;
mod drill;
mod explain;
mod host;
mod inspect;
mod pick;
mod run;
mod settings;
mod snap;
mod top;
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
        Command::Trace(args) => trace::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Drill(args) => drill::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Archive(args) => archive::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Unit(args) => unit::run(&args),
        Command::Top(args) => top::run(&args),
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
