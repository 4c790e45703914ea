//! The `fdguard` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    fdguard::run(std::env::args_os())
}
