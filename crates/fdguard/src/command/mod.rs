//! One file per verb.

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
#[cfg(feature = "serve")]
mod fleet;
#[cfg(feature = "serve")]
mod header_file;
#[cfg(feature = "serve")]
mod history;
#[cfg(feature = "host")]
mod host;
#[cfg(feature = "files")]
mod inspect;
#[cfg(any(feature = "host", feature = "serve"))]
mod listening;
mod pick;
#[cfg(feature = "supervise")]
mod run;
#[cfg(feature = "serve")]
mod serve;
mod settings;
mod snap;
#[cfg(any(feature = "host", feature = "serve"))]
mod token_file;
mod top;
#[cfg(feature = "trace")]
mod trace;
mod unit;
mod watch;
#[cfg(feature = "trace")]
mod why;

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
        Command::Why(args) => why::run(&args),
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
        #[cfg(feature = "serve")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(feature = "serve")]
        Command::History(args) => history::run(&args),
        #[cfg(feature = "serve")]
        Command::Fleet(args) => fleet::run(&args),
        Command::Completions { shell } => {
            crate::completion::print_script(shell).map(|()| exit::CLEAN)
        }
    };
    outcome.unwrap_or_else(|error| exit::report(&error))
}
