//! The command as a library, so that tests and `xtask` can reach it.
//!
//! Only this crate knows arguments, terminals and exit codes; the values that it shows come from
//! `fdguard-core`, read by `fdguard-probe`.

use std::ffi::OsString;
use std::process::ExitCode;

pub mod cli;
pub mod command;
mod completion;
pub mod exit;
mod input;
pub mod output;
pub mod progress;
pub mod report;
pub mod terminal;
pub mod tui;
pub mod unit;

/// Runs the command with these arguments, the program's name first.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let [_, word] = &args[..]
        && (word == "--version" || word == "-V")
    {
        // Scripts ask this often: answer before the command line is built.
        let line = concat!("fdguard ", env!("CARGO_PKG_VERSION"), "\n");
        let printed = output::emit(None, |out| Ok(out.write_all(line.as_bytes())?));
        return ExitCode::from(printed.map_or_else(|error| exit::report(&error), |()| exit::CLEAN));
    }
    if let [_, word, words @ ..] = &args[..]
        && word == completion::WORD
    {
        let printed = completion::print_candidates(words);
        return ExitCode::from(printed.map_or_else(|error| exit::report(&error), |()| exit::CLEAN));
    }
    // Where this fails, such a write ends fdguard, as it would end any other program.
    drop(fdguard_process::signals::survive_file_size_limit());
    let code = match cli::Cli::parse_args(args) {
        Ok(cli) => command::dispatch(cli),
        Err(error) => exit::usage(&error),
    };
    ExitCode::from(code)
}
