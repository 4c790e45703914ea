//! What a test needs from the machine, and saying aloud when that is missing.

#![expect(
    clippy::print_stderr,
    reason = "a skipped test must be seen in the test's output"
)]

use std::env;

/// Says on standard error that a test did not run, and why. The caller returns afterwards.
pub fn skip(reason: &str) {
    eprintln!("SKIPPED: {reason}");
}

/// Whether a program of this name is on the search path.
#[must_use]
pub fn have(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Whether the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
