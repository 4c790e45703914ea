//! Flags of protection, for `run` and `trace`.

use clap::{Args, ValueEnum};

/// How the program is protected against its own stale descriptors.
#[derive(Clone, Debug, Default, Args)]
pub struct ProtectArgs {
    /// Let no stale descriptor reach another file, and say what was prevented.
    #[arg(long, value_enum, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "warn-once")]
    pub protect: Option<Level>,
    /// Keep files of this name out of reach of sockets' numbers, besides databases; may be repeated.
    #[arg(long, value_name = "GLOB", requires = "protect")]
    pub shield: Vec<String>,
}

/// What happens when misuse was prevented; the names are those of fdsan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// No protection.
    Disabled,
    /// One report for each place in the code.
    WarnOnce,
    /// A report each time.
    WarnAlways,
    /// The program ends by SIGABRT.
    Fatal,
}
