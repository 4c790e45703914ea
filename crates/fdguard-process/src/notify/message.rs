//! Datagrams of sd_notify: lines of `KEY=VALUE`.

use std::time::Duration;

/// The longest name of a descriptor.
const LONGEST_NAME: usize = 255;

/// The content of one datagram. Absent fields were not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotifyMessage {
    /// The start, or the reload, is complete.
    pub ready: bool,
    /// A reload began.
    pub reloading: bool,
    /// Stopping began.
    pub stopping: bool,
    /// One line for people.
    pub status: Option<String>,
    /// Why it failed, as an errno value.
    pub errno: Option<i32>,
    /// Why it failed, as a D-Bus error name.
    pub bus_error: Option<String>,
    /// Why it failed, as a Varlink error name.
    pub varlink_error: Option<String>,
    /// The exit status that it is going to have.
    pub exit_status: Option<u8>,
    /// Which process is the main one.
    pub main_pid: Option<u32>,
    /// When a reload began, by the monotonic clock.
    pub monotonic: Option<Duration>,
    /// A watchdog ping or trigger.
    pub watchdog: Option<Watchdog>,
    /// The watchdog interval from now on.
    pub watchdog_interval: Option<Duration>,
    /// It needs this much more time.
    pub extend_timeout: Option<Duration>,
    /// Reset the restart counter.
    pub restart_reset: bool,
    /// Which processes may send from now on.
    pub access: Option<Access>,
    /// Store the attached descriptors.
    pub store: bool,
    /// Remove the stored descriptors with this name.
    pub store_remove: bool,
    /// The name of the descriptors.
    pub name: Option<String>,
    /// Drop them when they hang up; true by default.
    pub poll: bool,
    /// Close the one attached descriptor when everything before it has been processed.
    pub barrier: bool,
    /// Unknown keys: ignored, as the protocol requires.
    pub unknown: u32,
    /// Lines without a key, and invalid values: ignored.
    pub invalid: u32,
}

/// A watchdog ping or trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watchdog {
    /// It is alive.
    Ping,
    /// It detected a failure and asks to be ended.
    Trigger,
}

/// Which processes of a service may send notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// None.
    None,
    /// The main process.
    Main,
    /// The main process, and commands around it.
    Exec,
    /// Every process of the tree.
    All,
}

impl Access {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::None, "none"),
        (Self::Main, "main"),
        (Self::Exec, "exec"),
        (Self::All, "all"),
    ];

    fn parse(text: &str) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        names.find(|(_, name)| *name == text).map(|(it, _)| *it)
    }

    fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names.find(|(it, _)| *it == self).map_or("", |it| it.1)
    }
}

impl Default for NotifyMessage {
    fn default() -> Self {
        Self {
            ready: false,
            reloading: false,
            stopping: false,
            status: None,
            errno: None,
            bus_error: None,
            varlink_error: None,
            exit_status: None,
            main_pid: None,
            monotonic: None,
            watchdog: None,
            watchdog_interval: None,
            extend_timeout: None,
            restart_reset: false,
            access: None,
            store: false,
            store_remove: false,
            name: None,
            poll: true,
            barrier: false,
            unknown: 0,
            invalid: 0,
        }
    }
}

/// Whether descriptors may have this name: printable ASCII without a colon, at most 255 characters.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let fits = |byte: u8| (b' '..127).contains(&byte) && byte != b':';
    text.len() <= LONGEST_NAME && text.bytes().all(fits)
}

impl NotifyMessage {
    /// Parses a datagram. Nothing is rejected: what is not understood is counted.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let mut message = Self::default();
        // A zero byte at the end is a common mistake of C programs.
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        for line in bytes.split(|byte| *byte == b'\n') {
            if !line.is_empty() && message.parse_line(line).is_none() {
                message.invalid = message.invalid.saturating_add(1);
            }
        }
        message
    }

    /// Parses one line; `None` if it is invalid.
    fn parse_line(&mut self, line: &[u8]) -> Option<()> {
        let at = line.iter().position(|byte| *byte == b'=')?;
        let key = &line[..at];
        let value = std::str::from_utf8(&line[at + 1..]).ok();
        match key {
            b"" => return None,
            b"STATUS" => self.status = Some(String::from_utf8_lossy(&line[at + 1..]).into_owned()),
            b"READY" => self.ready = yes(value)?,
            b"RELOADING" => self.reloading = yes(value)?,
            b"STOPPING" => self.stopping = yes(value)?,
            b"RESTART_RESET" => self.restart_reset = yes(value)?,
            b"BARRIER" => self.barrier = yes(value)?,
            b"WATCHDOG" => {
                self.watchdog = Some(match value? {
                    "1" => Watchdog::Ping,
                    "trigger" => Watchdog::Trigger,
                    _ => return None,
                });
            }
            b"ERRNO" => self.errno = Some(number(value)?),
            b"EXIT_STATUS" => self.exit_status = Some(number(value)?),
            b"MAINPID" => self.main_pid = Some(number(value).filter(|pid| *pid > 0)?),
            b"BUSERROR" => self.bus_error = Some(value?.to_owned()),
            b"VARLINKERROR" => self.varlink_error = Some(value?.to_owned()),
            b"NOTIFYACCESS" => self.access = Some(Access::parse(value?)?),
            b"MONOTONIC_USEC" => self.monotonic = Some(microseconds(value)?),
            b"WATCHDOG_USEC" => self.watchdog_interval = Some(microseconds(value)?),
            b"EXTEND_TIMEOUT_USEC" => self.extend_timeout = Some(microseconds(value)?),
            b"FDSTORE" => self.store = yes(value)?,
            b"FDSTOREREMOVE" => self.store_remove = yes(value)?,
            b"FDPOLL" => self.poll = !no(value)?,
            b"FDNAME" => self.name = Some(value.filter(|name| is_name(name))?.to_owned()),
            _ => self.unknown = self.unknown.saturating_add(1),
        }
        Some(())
    }

    /// Writes the datagram. A line break in a text becomes a space, so that a text cannot add
    /// fields.
    #[must_use]
    pub fn format(&self) -> Vec<u8> {
        let mut lines = Vec::new();
        let mut say = |key: &str, value: Option<String>| {
            lines.extend(value.map(|value| format!("{key}={}", value.replace(['\n', '\0'], " "))));
        };
        let flag = |set: bool| set.then(|| "1".to_owned());
        let length = |value: Option<Duration>| value.map(|value| value.as_micros().to_string());
        say("READY", flag(self.ready));
        say("RELOADING", flag(self.reloading));
        say("STOPPING", flag(self.stopping));
        say("MONOTONIC_USEC", length(self.monotonic));
        say("STATUS", self.status.clone());
        say("ERRNO", self.errno.map(|it| it.to_string()));
        say("BUSERROR", self.bus_error.clone());
        say("VARLINKERROR", self.varlink_error.clone());
        say("EXIT_STATUS", self.exit_status.map(|it| it.to_string()));
        say("MAINPID", self.main_pid.map(|it| it.to_string()));
        let sign = |sign| match sign {
            Watchdog::Ping => "1".to_owned(),
            Watchdog::Trigger => "trigger".to_owned(),
        };
        say("WATCHDOG", self.watchdog.map(sign));
        say("WATCHDOG_USEC", length(self.watchdog_interval));
        say("EXTEND_TIMEOUT_USEC", length(self.extend_timeout));
        say("RESTART_RESET", flag(self.restart_reset));
        say("NOTIFYACCESS", self.access.map(|it| it.name().to_owned()));
        say("FDSTORE", flag(self.store));
        say("FDSTOREREMOVE", flag(self.store_remove));
        say("FDNAME", self.name.clone());
        say("FDPOLL", (!self.poll).then(|| "0".to_owned()));
        say("BARRIER", flag(self.barrier));
        lines.join("\n").into_bytes()
    }
}

fn yes(value: Option<&str>) -> Option<bool> {
    (value == Some("1")).then_some(true)
}

fn no(value: Option<&str>) -> Option<bool> {
    match value? {
        "0" | "no" | "false" | "off" => Some(true),
        "1" | "yes" | "true" | "on" => Some(false),
        _ => None,
    }
}

fn number<T: std::str::FromStr>(value: Option<&str>) -> Option<T> {
    value?.parse().ok()
}

fn microseconds(value: Option<&str>) -> Option<Duration> {
    number(value).map(Duration::from_micros)
}

#[cfg(test)]
mod tests;
