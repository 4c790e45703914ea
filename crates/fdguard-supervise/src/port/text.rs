//! The text of a conflict.

use std::collections::BTreeMap;
use std::fmt;

use fdguard_core::snapshot::Process;

use super::class::HolderClass;
use super::conflict::{AddressHolder, Conflict, HiddenSocket};

/// The most characters of a command that fit on one line.
const LONGEST: usize = 120;

/// The names of users, as far as the password file has them.
#[derive(Debug, Default)]
pub(super) struct Users(BTreeMap<u32, String>);

impl Users {
    pub(super) fn read() -> Self {
        let text = std::fs::read("/etc/passwd").unwrap_or_default();
        Self::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let mut words = line.split(':');
            let name = words.next()?.to_owned();
            Some((words.nth(1)?.parse().ok()?, name))
        };
        Self(text.lines().filter_map(row).collect())
    }

    pub(super) fn name(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

/// The command of a process, on one line: its arguments, or its name if they are not visible.
pub(super) fn command(process: &Process) -> String {
    let words: Vec<_> = process
        .cmdline
        .iter()
        .map(|word| String::from_utf8_lossy(word.as_bytes()).into_owned())
        .collect();
    let text = if words.is_empty() {
        String::from_utf8_lossy(process.comm.as_bytes()).into_owned()
    } else {
        words.join(" ")
    };
    // It goes to terminals and logs: strip control characters.
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

impl fmt::Display for AddressHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}", self.command, self.pid)?;
        if let Some(user) = &self.user {
            write!(f, ", user {user}")?;
        }
        if let Some(since) = self.since {
            write!(f, ", since {}", since.strftime("%Y-%m-%d %H:%M:%S UTC"))?;
        }
        match &self.class {
            HolderClass::OursNow => write!(f, "): part of this run"),
            HolderClass::OursBefore { because } => {
                write!(f, "): left behind by an earlier run: {because}")
            }
            HolderClass::Stranger { because } => write!(f, "): unrelated process: {because}"),
        }
    }
}

impl fmt::Display for HiddenSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_deref().unwrap_or("unknown");
        write!(
            f,
            "a process that fdguard cannot see (socket {} of user {user})",
            self.ino
        )
    }
}

impl fmt::Display for Conflict {
    /// One line: the address and its holders.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holders.is_empty() && self.unseen.is_empty() {
            return write!(
                f,
                "{} is in use by a socket that the kernel does not list",
                self.at
            );
        }
        let how = if self.listens {
            "is held by"
        } else {
            "is in use, without a listener, by"
        };
        let holders = self.holders.iter().map(ToString::to_string);
        let unseen = self.unseen.iter().map(ToString::to_string);
        let all: Vec<String> = holders.chain(unseen).collect();
        write!(f, "{} {how} {}", self.at, all.join("; and by "))
    }
}

impl Conflict {
    /// What would help.
    #[must_use]
    pub fn remedy(&self) -> String {
        if self.is_all_ours_before() {
            return "use --on-conflict end-if-ours to end what an earlier run left behind"
                .to_owned();
        }
        let pids: Vec<String> = self.holders.iter().map(|it| it.pid.to_string()).collect();
        if pids.is_empty() {
            return "run fdguard as root, or on the container's host, to identify the process"
                .to_owned();
        }
        format!("stop it (pid {}), or use another address", pids.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressHolder, Conflict, HiddenSocket, HolderClass, Users};

    fn holder(class: HolderClass) -> AddressHolder {
        AddressHolder {
            pid: 4711,
            start_ticks: Some(1),
            command: "python3 server.py".to_owned(),
            user: Some("alice".to_owned()),
            since: Some("2026-03-01T10:00:00Z".parse().unwrap()),
            class,
        }
    }

    #[test]
    fn the_line_names_pid_command_user_and_since_when() {
        let conflict = Conflict {
            at: fdguard_process::listen::ListenAddress::Any(8787),
            listens: true,
            holders: vec![holder(HolderClass::Stranger {
                because: "it was not started by fdguard".to_owned(),
            })],
            unseen: vec![HiddenSocket { ino: 5, user: None }],
        };
        assert_eq!(
            conflict.to_string(),
            "tcp:*:8787 is held by python3 server.py (pid 4711, user alice, since 2026-03-01 10:00:00 UTC): unrelated process: \
             it was not started by fdguard; and by a process that fdguard cannot see (socket 5 of user unknown)"
        );
        assert!(conflict.remedy().contains("4711"));
    }

    #[test]
    fn a_user_without_a_name_is_a_number() {
        let users = Users::parse("root:x:0:0:root:/root:/bin/sh\nbroken\nbob:x:no:\n");
        assert_eq!((users.name(0), users.name(7)), ("root".into(), "7".into()));
    }
}
