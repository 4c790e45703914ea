//! Where a service's output goes, as configured.

use std::path::PathBuf;
use std::str::FromStr;

use fdguard_core::units;

/// Where a service's output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputSpec {
    /// Whether it also goes to fdguard's output. Absent: inherited without a log, off with one.
    pub pass: Option<Forwarding>,
    /// A file that is rotated (`--log FILE`).
    pub log: Option<PathBuf>,
    /// The size from which on it is rotated (`--log-size 10MiB`).
    pub log_size: u64,
    /// How many finished files are kept, as `FILE.1` (the newest) and so on (`--log-keep 5`).
    pub log_keep: u32,
}

/// The smallest file worth a rotation.
pub const SMALLEST: u64 = 4 << 10;
/// More finished files than anyone reads; each is renamed at every rotation.
pub const MOST: u32 = 1000;

impl Default for OutputSpec {
    fn default() -> Self {
        Self {
            pass: None,
            log: None,
            log_size: 10 << 20,
            log_keep: 5,
        }
    }
}

impl OutputSpec {
    /// Whether it has to pass through fdguard; `needs_lines` if a check or the crash report needs
    /// the lines.
    #[must_use]
    pub fn is_captured(&self, needs_lines: bool) -> bool {
        needs_lines || self.log.is_some() || self.way() != Forwarding::Inherit
    }

    /// Where it goes besides the log.
    #[must_use]
    pub fn way(&self) -> Forwarding {
        let usual = match self.log {
            Some(_) => Forwarding::Off,
            None => Forwarding::Inherit,
        };
        self.pass.unwrap_or(usual)
    }

    /// Whether the settings are valid.
    pub fn check(&self) -> Result<(), String> {
        if self.log_size < SMALLEST {
            return Err("size must be at least 4KiB".to_owned());
        }
        if self.log_keep > MOST {
            return Err(format!("keep must be at most {MOST}"));
        }
        Ok(())
    }
}

impl FromStr for OutputSpec {
    type Err = String;

    /// `off`, or `FILE`, optionally followed by `size=10MiB`, `keep=5` and `pass=lines`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut form = Self::default();
        let mut rest = text.trim();
        // From the end: the file name may contain spaces.
        while let Some((before, word)) = rest.rsplit_once(' ') {
            match word.split_once('=') {
                Some(("size", value)) => form.log_size = units::parse_size(value)?,
                Some(("keep", value)) => {
                    let number = value.parse();
                    form.log_keep =
                        number.map_err(|_why| format!("{value:?} is not a number of logs"))?;
                }
                Some(("pass", value)) => form.pass = Some(value.parse()?),
                _ => break,
            }
            rest = before.trim_end();
        }
        if rest.is_empty() {
            return Err("file name missing: use FILE or off".to_owned());
        }
        form.log = (rest != "off").then(|| rest.into());
        form.check()?;
        Ok(form)
    }
}

/// Where output goes besides a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// The service writes directly to fdguard's output. If it must pass through fdguard, the same
    /// as `Lines`.
    #[default]
    Inherit,
    /// Line by line to fdguard's output.
    Lines,
    /// Line by line to fdguard's output, prefixed with the service's name.
    Prefix,
    /// Nowhere.
    Off,
}

impl FromStr for Forwarding {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "inherit" => Ok(Self::Inherit),
            "lines" => Ok(Self::Lines),
            "prefix" => Ok(Self::Prefix),
            "off" => Ok(Self::Off),
            _ => Err(format!(
                "{text:?} is not one of inherit, lines, prefix, off"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Forwarding, OutputSpec};

    #[test]
    fn a_flag_is_a_file_with_words_behind_it() {
        let form: OutputSpec = "/var/log/my app.log size=1MiB keep=9 pass=lines"
            .parse()
            .unwrap();
        let expected = OutputSpec {
            pass: Some(Forwarding::Lines),
            log: Some("/var/log/my app.log".into()),
            log_size: 1 << 20,
            log_keep: 9,
        };
        assert_eq!(form, expected);
        let alone: OutputSpec = "a.log".parse().unwrap();
        assert_eq!((alone.way(), alone.log_keep), (Forwarding::Off, 5));
        assert_eq!("off".parse(), Ok(OutputSpec::default()));
        for bad in [
            "",
            "a.log size=x",
            "a.log keep=many",
            "a.log pass=loud",
            "a.log size=1B",
            "a.log keep=5000",
        ] {
            assert!(bad.parse::<OutputSpec>().is_err(), "{bad}");
        }
    }

    #[test]
    fn output_goes_through_us_only_when_somebody_needs_it() {
        let form = OutputSpec::default();
        assert!(!form.is_captured(false) && form.is_captured(true));
        let small = OutputSpec {
            log: Some("x".into()),
            log_size: 10,
            ..form
        };
        assert!(small.is_captured(false));
        assert!(small.check().is_err());
    }
}
