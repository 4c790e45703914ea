//! Flags of protection, for `run`, `trace` and `check`.

use clap::{Args, ValueEnum};
use fdguard_trace::{Protection, Report};

/// How the program is protected against its own stale descriptors.
#[derive(Clone, Debug, Default, Args)]
pub struct ProtectArgs {
    /// Let no stale descriptor reach another file, and say what was prevented.
    #[arg(long, value_enum, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "warn-once")]
    pub protect: Option<ProtectLevel>,
    /// Keep files of this name out of reach of sockets' numbers, besides databases; may be repeated.
    #[arg(long, value_name = "GLOB", requires = "protect", value_parser = parse_shield)]
    pub shield: Vec<String>,
}

impl ProtectArgs {
    /// What the tracer is asked for; nothing where there is to be no protection.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        let report = match self.protect? {
            ProtectLevel::Disabled => return None,
            ProtectLevel::WarnOnce => Report::Once,
            ProtectLevel::WarnAlways => Report::Always,
            ProtectLevel::Fatal => Report::Fatal,
        };
        Some(Protection::new(report).shielding(self.shield.clone()))
    }
}

/// What happens when misuse was prevented; the names are those of fdsan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtectLevel {
    /// No protection.
    Disabled,
    /// One report for each place in the code.
    WarnOnce,
    /// A report each time.
    WarnAlways,
    /// The program ends by SIGABRT.
    Fatal,
}

/// The library is given all of them in one variable, with colons between.
fn parse_shield(text: &str) -> Result<String, String> {
    match text {
        "" => Err("an empty pattern fits no file".to_owned()),
        _ if text.contains(':') => Err("a pattern must not have a colon: put ? for it".to_owned()),
        _ => Ok(text.to_owned()),
    }
}
