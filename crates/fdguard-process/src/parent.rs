//! Detects the supervisor above fdguard.
//!
//! [`judge`] is pure; [`Facts::read`] collects its input. The order matters: the first match wins,
//! and signs that every process below a supervisor inherits (`INVOCATION_ID` in a desktop terminal)
//! need a second one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use crate::run_id::{self, RunId};

/// The kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// systemd, of the system or of a user.
    Systemd,
    /// launchd.
    Launchd,
    /// supervisord.
    Supervisord,
    /// PM2.
    Pm2,
    /// s6.
    S6,
    /// runit.
    Runit,
    /// circus.
    Circus,
    /// daemontools.
    Daemontools,
    /// OpenRC.
    OpenRc,
    /// A container engine.
    Container,
    /// Another `fdguard run`.
    Fdguard,
    /// None: a shell, a terminal, cron.
    Nobody,
}

impl Kind {
    const NAMES: [(Self, &'static str); 12] = [
        (Self::Systemd, "systemd"),
        (Self::Launchd, "launchd"),
        (Self::Supervisord, "supervisord"),
        (Self::Pm2, "pm2"),
        (Self::S6, "s6"),
        (Self::Runit, "runit"),
        (Self::Circus, "circus"),
        (Self::Daemontools, "daemontools"),
        (Self::OpenRc, "openrc"),
        (Self::Container, "container"),
        (Self::Fdguard, "fdguard"),
        (Self::Nobody, "nobody"),
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(kind, _)| kind == self);
        f.write_str(name.map_or("", |it| it.1))
    }
}

impl FromStr for Kind {
    type Err = String;

    /// Parses the name of a supervisor, to override the detection.
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|it| it.0).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|it| it.1).collect();
            format!("{text:?} is not one of {}", names.join(", "))
        })
    }
}

/// The detected supervisor and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The kind.
    pub kind: Kind,
    /// The evidence, in one sentence.
    pub reason: String,
    /// The enclosing run, even if there are processes in between.
    pub within: Option<RunId>,
}

impl Parent {
    /// Whether a supervisor restarts fdguard.
    #[must_use]
    pub fn is_supervisor(&self) -> bool {
        self.kind != Kind::Nobody
    }
}

/// The input of the decision.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// fdguard's pid.
    pub pid: u32,
    /// The parent's pid.
    pub parent_pid: u32,
    /// The parent's name, from the kernel; absent if unreadable.
    pub parent_name: Option<String>,
    /// The variables listed in [`VARIABLES`] that are set and not empty.
    pub variables: BTreeMap<&'static str, OsString>,
    /// Device and inode of standard error.
    pub stderr: Option<(u64, u64)>,
    /// Whether this is macOS.
    pub macos: bool,
    /// A file that exists only in containers, if there is one.
    pub container_file: Option<&'static str>,
    /// Whether standard input is a terminal.
    pub terminal: bool,
}

/// All relevant variables.
pub const VARIABLES: [&str; 13] = [
    run_id::VARIABLE,
    "SYSTEMD_EXEC_PID",
    "NOTIFY_SOCKET",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "XPC_SERVICE_NAME",
    "SUPERVISOR_ENABLED",
    "pm_id",
    "PM2_HOME",
    "RC_SVCNAME",
    "container",
    "KUBERNETES_SERVICE_HOST",
    "SUPERVISOR_PROCESS_NAME",
];

const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];

impl Facts {
    /// Collects them.
    #[must_use]
    pub fn read() -> Self {
        let value = |name: &'static str| {
            let value = std::env::var_os(name).filter(|value| !value.is_empty());
            value.map(|value| (name, value))
        };
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        let parent = parent.and_then(|pid| u32::try_from(pid).ok());
        let stderr = rustix::fs::fstat(rustix::stdio::stderr()).ok();
        let there = |path: &&'static str| std::path::Path::new(path).exists();
        Self {
            pid: std::process::id(),
            parent_pid: parent.unwrap_or(0),
            parent_name: parent.and_then(fdguard_proc::process::name),
            variables: VARIABLES.into_iter().filter_map(value).collect(),
            stderr: stderr.map(|stat| (stat.st_dev, stat.st_ino)),
            macos: cfg!(target_os = "macos"),
            container_file: CONTAINER_FILES.into_iter().find(|path| there(path)),
            terminal: std::io::IsTerminal::is_terminal(&std::io::stdin()),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.variables.get(name)?.to_str()
    }

    fn has(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }
}

type Test = fn(&Facts) -> Option<String>;

/// Tried in this order. Another fdguard comes before most others: a run's program gets fdguard's
/// notification socket, and processes below it must not mistake that for systemd's. Only the pid
/// that systemd set for this process alone is stronger evidence.
const TESTS: [(Kind, Test); 12] = [
    (Kind::Systemd, started_by_systemd),
    (Kind::Fdguard, fdguard),
    (Kind::Systemd, systemd),
    (Kind::Launchd, launchd),
    (Kind::Supervisord, supervisord),
    (Kind::Pm2, pm2),
    (Kind::S6, |facts| named(facts, &["s6-supervise"])),
    (Kind::Runit, |facts| named(facts, &["runsv"])),
    (Kind::Circus, |facts| named(facts, &["circusd"])),
    (Kind::Daemontools, |facts| named(facts, &["supervise"])),
    (Kind::OpenRc, open_rc),
    (Kind::Container, container),
];

/// Detects the supervisor above fdguard.
#[must_use]
pub fn judge(facts: &Facts) -> Parent {
    let mut fits = TESTS
        .iter()
        .filter_map(|(kind, test)| Some((*kind, test(facts)?)));
    let (kind, reason) = fits.next().unwrap_or_else(|| {
        let name = facts.parent_name.as_deref().unwrap_or("unknown");
        let place = if facts.terminal {
            ", on a terminal"
        } else {
            ""
        };
        let reason = format!("no supervisor detected; the parent is {name}{place}");
        (Kind::Nobody, reason)
    });
    Parent {
        kind,
        reason,
        within: facts.text(run_id::VARIABLE).and_then(|it| it.parse().ok()),
    }
}

fn started_by_systemd(facts: &Facts) -> Option<String> {
    let told = facts.text("SYSTEMD_EXEC_PID")?.parse() == Ok(facts.pid);
    told.then(|| "SYSTEMD_EXEC_PID is the pid of fdguard".to_owned())
}

fn fdguard(facts: &Facts) -> Option<String> {
    let id = facts.text(run_id::VARIABLE)?;
    Some(format!("{}={id} is set", run_id::VARIABLE))
}

fn systemd(facts: &Facts) -> Option<String> {
    if facts.has("NOTIFY_SOCKET") {
        return Some("NOTIFY_SOCKET is set".to_owned());
    }
    // Everything below a service inherits this variable, including terminals on the desktop.
    if !facts.has("INVOCATION_ID") {
        return None;
    }
    let by_systemd = facts.parent_name.as_deref() == Some("systemd");
    if by_systemd || facts.parent_pid == 1 {
        return Some("INVOCATION_ID is set and the parent is the service manager".to_owned());
    }
    let stream = facts.text("JOURNAL_STREAM")?;
    let (device, inode) = stream.split_once(':')?;
    let stream = (device.parse().ok()?, inode.parse().ok()?);
    let confirmed = facts.stderr == Some(stream);
    confirmed.then(|| "INVOCATION_ID is set and JOURNAL_STREAM matches standard error".to_owned())
}

fn launchd(facts: &Facts) -> Option<String> {
    let name = facts.text("XPC_SERVICE_NAME")?;
    // Desktop terminals and editors set these.
    let is_noise = name == "0" || name.starts_with("application.");
    let fits = facts.macos && facts.parent_pid == 1 && !is_noise;
    fits.then(|| format!("XPC_SERVICE_NAME={name} and the parent is process 1"))
}

fn supervisord(facts: &Facts) -> Option<String> {
    (facts.text("SUPERVISOR_ENABLED")? == "1").then(|| {
        let name = facts.text("SUPERVISOR_PROCESS_NAME");
        let name = name.map(|name| format!(" (program {name})"));
        format!("SUPERVISOR_ENABLED=1{}", name.unwrap_or_default())
    })
}

fn pm2(facts: &Facts) -> Option<String> {
    let both = facts.has("pm_id") && facts.has("PM2_HOME");
    both.then(|| "pm_id and PM2_HOME are set".to_owned())
}

fn named(facts: &Facts, names: &[&str]) -> Option<String> {
    let name = facts.parent_name.as_deref()?;
    names
        .contains(&name)
        .then(|| format!("the parent is {name} (pid {})", facts.parent_pid))
}

fn open_rc(facts: &Facts) -> Option<String> {
    let name = facts.text("RC_SVCNAME")?;
    Some(format!("RC_SVCNAME={name} is set"))
}

fn container(facts: &Facts) -> Option<String> {
    if facts.pid == 1 {
        return Some("fdguard is process 1".to_owned());
    }
    for name in ["container", "KUBERNETES_SERVICE_HOST"] {
        if facts.has(name) {
            return Some(format!("{name} is set"));
        }
    }
    facts.container_file.map(|path| format!("{path} exists"))
}

#[cfg(test)]
mod tests;
