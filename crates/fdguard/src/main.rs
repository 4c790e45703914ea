//! The `fdguard` command.

use std::process::ExitCode;

/// Internal: this process has forked a program and becomes its keeper. Checked before anything
/// else, because a session waits for it.
const KEEPER: &str = "__keeper";

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    if args.nth(1).is_some_and(|word| word == KEEPER) {
        fdguard_process::tree::keep_here(args);
    }
    fdguard_process::name_lookup::restrict();
    fdguard::run(std::env::args_os())
}
