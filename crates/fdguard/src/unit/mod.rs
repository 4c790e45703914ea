//! Units for supervisors: generating and linting them.
//!
//! Each supervisor is a `UnitKind` in its own file, which writes its units; `read` parses each
//! format into a tree with line numbers; `lint` has a table of rules for each. Nothing here opens a
//! file.

use std::time::Duration;

use clap::ValueEnum;
use fdguard_core::rule::RuleTable;
use fdguard_core::units::exact_duration;
use fdguard_process::listen::Listen;

use self::read::{UnitNode, UnreadableUnit};

mod compose;
mod launchd;
pub mod lint;
pub mod read;
mod supervisord;
mod systemd;
mod words;

/// The supervisor that a unit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitTarget {
    /// A service of systemd.
    Systemd,
    /// A property list of launchd.
    Launchd,
    /// A program section of supervisord.
    Supervisord,
    /// A service of Docker Compose.
    Compose,
}

impl UnitTarget {
    /// Every one.
    pub const ALL: [Self; 4] = [
        Self::Systemd,
        Self::Launchd,
        Self::Supervisord,
        Self::Compose,
    ];

    fn kind(self) -> &'static dyn UnitKind {
        match self {
            Self::Systemd => &systemd::Systemd,
            Self::Launchd => &launchd::Launchd,
            Self::Supervisord => &supervisord::Supervisord,
            Self::Compose => &compose::Compose,
        }
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.kind().name()
    }
}

/// The units of one supervisor.
trait UnitKind {
    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// The ends of the names of its files, and the beginnings of lines that only they have.
    fn signs(&self) -> (&'static [&'static str], &'static [&'static str]);

    /// Writes a unit.
    fn write(&self, spec: &UnitSpec) -> Result<String, UnitError>;

    /// Parses a file.
    fn read(&self, text: &str) -> Result<UnitNode, UnreadableUnit>;

    /// The services in a file.
    fn services<'a>(&self, file: &'a UnitNode) -> Vec<lint::Unit<'a>>;

    /// The traps in its services.
    fn rules(&self) -> RuleTable<lint::Check>;
}

/// The input for a unit.
#[derive(Clone, Debug)]
pub struct UnitSpec {
    /// The name of the service.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The path of fdguard.
    pub fdguard: String,
    /// Sockets that `fdguard run` binds.
    pub listen: Vec<Listen>,
    /// Where `fdguard run` serves its metrics.
    pub metrics: Option<String>,
    /// Time from the first signal to KILL.
    pub grace: Duration,
    /// `always`, `on-failure` or `never`, as `fdguard run` accepts it.
    pub restart: &'static str,
    /// Soft and hard limit of descriptors.
    pub files: (u64, u64),
    /// For one user, not for the whole machine.
    pub user: bool,
    /// The program's working directory.
    pub dir: Option<String>,
    /// The user's home directory.
    pub home: Option<String>,
    /// The image of a container; built from the directory of the file if absent.
    pub image: Option<String>,
}

/// Why a unit cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError(pub String);

impl UnitSpec {
    /// The unit.
    pub fn write(&self, target: UnitTarget) -> Result<String, UnitError> {
        target.kind().write(self)
    }

    /// The whole command: `fdguard run` around the program.
    fn words(&self) -> Vec<String> {
        let mut words = vec![self.fdguard.clone(), "run".to_owned()];
        let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
        flag("--name", self.name.clone());
        flag("--restart", self.restart.to_owned());
        flag("--stop-grace", exact_duration(self.grace));
        for listen in &self.listen {
            flag("--listen", listen.to_string());
        }
        if let Some(metrics) = &self.metrics {
            flag("--metrics", metrics.clone());
        }
        words.push("--".to_owned());
        words.extend(self.command.iter().cloned());
        words
    }

    /// How long the supervisor waits before it kills fdguard: enough for fdguard's own grace
    /// period, its SIGKILL and its last output.
    fn patience(&self) -> u64 {
        self.grace.as_secs() + u64::from(self.grace.subsec_nanos() > 0) + 15
    }
}

/// Whether this is a valid service name: it becomes the name of files and sections.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts && text.len() <= 128 && text.chars().all(fits)
}

#[cfg(test)]
mod tests;
