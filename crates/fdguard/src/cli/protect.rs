//! Protection flags of `run`, `trace` and `check`.

use clap::{Args, ValueEnum};
use fdguard_trace::{Protection, ReportPolicy};

/// Protection of the program against its own stale descriptors.
#[derive(Clone, Debug, Default, Args)]
pub struct ProtectArgs {
    /// Prevent stale descriptors from reaching another file, and report each attempt.
    #[arg(help_heading = "Protection", long, value_enum, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "warn-once")]
    pub protect: Option<ProtectLevel>,
    /// Also protect matching files, besides databases, from reuse of socket descriptor numbers; may
    /// be repeated.
    #[arg(help_heading = "Protection", long, value_name = "GLOB", requires = "protect", value_parser = parse_shield)]
    pub shield: Vec<String>,
}

impl ProtectArgs {
    /// The requested protection; `None` for no protection.
    #[must_use]
    pub fn protection(&self) -> Option<Protection> {
        let report = match self.protect? {
            ProtectLevel::Disabled => return None,
            ProtectLevel::WarnOnce => ReportPolicy::Once,
            ProtectLevel::WarnAlways => ReportPolicy::Always,
            ProtectLevel::Fatal => ReportPolicy::Fatal,
        };
        Some(Protection::new(report).shielding(self.shield.clone()))
    }
}

/// What happens when misuse is prevented. The names are those of fdsan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtectLevel {
    /// No protection.
    Disabled,
    /// Report once per call site.
    WarnOnce,
    /// Report every time.
    WarnAlways,
    /// Abort the program (SIGABRT).
    Fatal,
}

/// The library receives all patterns in one variable, separated by colons.
fn parse_shield(text: &str) -> Result<String, String> {
    match text {
        "" => Err("pattern is empty".to_owned()),
        _ if text.contains(':') => {
            Err("pattern must not contain a colon: use ? to match one".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}
