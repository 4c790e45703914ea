//! One service, with every value read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use fdguard_core::located::{ConfigMistake, ValueSource};
use fdguard_core::units;
use fdguard_process::listen::Listen;
use fdguard_process::notify::Access;
use fdguard_process::signals;
use fdguard_process::tree::StopPlan;

use super::Overrides;
use super::key;
use super::reader::{Reader, mistake};
use super::value::Values;
use crate::budget::{self, Budget};
use crate::drain;
use crate::health::CheckSpec;
use crate::lifecycle::{RemedySettings, RestartPolicy, RestartWhen};
use crate::limit::LimitRequest;
use crate::output::OutputSpec;
use crate::port::PortPolicy;

/// One service.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Its name.
    pub name: String,
    /// The values, as written.
    pub values: Values,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Services that must be ready before it starts.
    pub after: Vec<String>,
    /// Its working directory.
    pub dir: Option<PathBuf>,
    /// Additional environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// When it is restarted.
    pub policy: RestartPolicy,
    /// How it is stopped.
    pub stop: StopPlan,
    /// What to do with a remaining child that has a listening socket.
    pub background: Background,
    /// The sockets that are passed to it.
    pub listen: Vec<SocketConfig>,
    /// What to do if one of them is in use.
    pub on_conflict: PortPolicy,
    /// The readiness check; absent: ready at once.
    pub ready: Option<CheckSpec>,
    /// How long it may take to become ready.
    pub ready_timeout: Duration,
    /// The liveness checks.
    pub health: Vec<CheckSpec>,
    /// The watchdog interval.
    pub watchdog: Option<Duration>,
    /// Which processes may send notifications.
    pub access: Access,
    /// Its budgets.
    pub budgets: Vec<Budget>,
    /// The remedy for a breach.
    pub relief: RemedySettings,
    /// The soft limit of descriptors that it gets at least, up to the hard limit.
    pub raise_limit: LimitRequest,
    /// How to drain it.
    pub drain: drain::DrainSpec,
    /// Where its output goes.
    pub output: OutputSpec,
}

/// What to do if the program exits with 0 while a descendant holds a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// It becomes the service.
    Adopt,
    /// It is stopped, and the program's exit counts.
    End,
    /// It is stopped, and the service has failed.
    Fail,
}

impl FromStr for Background {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "adopt" => Ok(Self::Adopt),
            "end" => Ok(Self::End),
            "fail" => Ok(Self::Fail),
            _ => Err(format!("{text:?} is not one of adopt, end, fail")),
        }
    }
}

/// A socket that is passed to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketConfig {
    /// Bound by fdguard.
    Bind(Listen),
    /// Inherited from the parent, by its name.
    Inherited(String),
}

impl FromStr for SocketConfig {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("fd:") {
            Some(name) => Ok(Self::Inherited(name.to_owned())),
            None => Ok(Self::Bind(
                text.parse().map_err(|error| format!("{error}"))?,
            )),
        }
    }
}

impl ServiceConfig {
    /// Reads the values.
    pub(super) fn resolve(
        name: String,
        values: Values,
        said: &Overrides,
    ) -> Result<Self, ConfigMistake> {
        let reader = Reader {
            keys: key::SERVICE,
            values: &values,
        };
        let words = reader.all("command", |text| Ok::<_, String>(OsString::from(text)))?;
        // Command line arguments need not be UTF-8.
        let is_said = values.get("command").map(|value| value.source) == Some(ValueSource::Flag);
        let command = if is_said { said.command.clone() } else { words };
        if command.iter().all(|word| word.is_empty()) {
            let source = reader.texts("command").1;
            return Err(mistake("command", source, "no program given"));
        }
        let mut policy = restarts(reader)?;
        if said.once {
            policy.restart = RestartWhen::Never;
        }
        Ok(Self {
            command,
            after: reader.texts("after").0,
            dir: reader.maybe("folder", |text| Ok::<_, String>(PathBuf::from(text)))?,
            environment: reader.all("env", pair)?,
            policy,
            stop: StopPlan {
                signal: reader.by("stop_signal", signal)?,
                grace: reader.by("stop_grace", units::parse_duration)?,
            },
            background: match said.once {
                true => Background::End,
                false => reader.one("background")?,
            },
            listen: reader.all("listen", str::parse)?,
            on_conflict: reader.one("on_conflict")?,
            ready: checks(reader, "ready")?.pop(),
            ready_timeout: reader.by("ready_timeout", units::parse_positive_duration)?,
            health: lasting(reader)?,
            watchdog: reader.maybe("watchdog", units::parse_positive_duration)?,
            access: reader.by("notify_access", access)?,
            budgets: budget::effective(&reader.all("budget", str::parse)?),
            relief: relief(reader)?,
            raise_limit: reader.one("raise_limit")?,
            drain: reader.one("drain")?,
            output: reader.one("log")?,
            name,
            values,
        })
    }
}

fn restarts(reader: Reader<'_>) -> Result<RestartPolicy, ConfigMistake> {
    Ok(RestartPolicy {
        restart: reader.one("restart")?,
        stop_on: reader.all("stop_on", |text| {
            text.parse()
                .map_err(|_error| format!("{text:?} is not an exit code: use 0 to 255"))
        })?,
        spacing: reader.one("backoff")?,
        min_uptime: reader.by("min_uptime", units::parse_duration)?,
        reset_after: reader.by("reset_after", units::parse_duration)?,
        crash_loop: reader.maybe("crash_loop", str::parse)?,
    })
}

/// The settings of a remedy: its evidence only if that is wanted.
fn relief(reader: Reader<'_>) -> Result<RemedySettings, ConfigMistake> {
    let drains: drain::DrainSpec = reader.one("drain")?;
    let drain = reader.by("drain_timeout", units::parse_duration)?;
    let grace = reader.by("stop_grace", units::parse_duration)?;
    Ok(RemedySettings {
        drain: match drains {
            drain::DrainSpec::None => Duration::ZERO,
            _ => drain,
        },
        stop: grace + Duration::from_secs(20),
        prove: reader.by("prove_timeout", units::parse_positive_duration)?,
        at_start: reader.by("warmup", units::parse_duration)?,
        when_again: reader.one("when_again")?,
        ..RemedySettings::default()
    })
}

fn pair(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}

fn signal(text: &str) -> Result<i32, String> {
    signals::by_name(text)
        .ok_or_else(|| format!("{text:?} is not a signal: use TERM, INT, QUIT, …"))
}

/// The checks under a key, in either form.
fn checks(reader: Reader<'_>, name: &'static str) -> Result<Vec<CheckSpec>, ConfigMistake> {
    match reader.values.get(name) {
        Some(value) if !value.checks.is_empty() => Ok(value.checks.clone()),
        _ => reader.all(name, str::parse),
    }
}

/// Checks that can be repeated.
fn lasting(reader: Reader<'_>) -> Result<Vec<CheckSpec>, ConfigMistake> {
    let all = checks(reader, "health")?;
    if let Some(once) = all.iter().find(|check| check.is_once()) {
        let message = format!(
            "{} reports readiness once: use it for ready, not for health",
            once.kind
        );
        return Err(mistake("health", reader.texts("health").1, message));
    }
    Ok(all)
}

fn access(text: &str) -> Result<Access, String> {
    match text {
        "none" => Ok(Access::None),
        "main" => Ok(Access::Main),
        "exec" => Ok(Access::Exec),
        "all" => Ok(Access::All),
        _ => Err(format!("{text:?} is not one of none, main, exec, all")),
    }
}
