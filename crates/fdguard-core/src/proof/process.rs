//! Processes that outlived the program, and children that it never waited for.

use serde::Serialize;

use super::{Rule, RuleKind};
use crate::lint::Severity;
use crate::origin::Origin;
use crate::{Pid, Text};

/// A process that was left behind.
pub const RULE: Rule = Rule {
    id: "leftover-process",
    kind: RuleKind::Proof,
    severity: Severity::Critical,
    summary: "a process that the program started outlived it or was never waited for",
    cwe: None,
    requirement: "R38",
    fix: Some(
        "terminate and wait for every child before the program exits; a child in its own session does not end with its parent",
    ),
};

/// Its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It was still running.
    Running,
    /// It exited and was not waited for.
    Zombie,
}

/// How the check ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Left alone, as requested.
    Kept,
    /// It exited on request (SIGTERM).
    Asked,
    /// It had to be killed (SIGKILL).
    Killed,
    /// It had already exited.
    Ended,
    /// It could not be terminated.
    Failed,
}

/// A process that was left behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftoverProcess {
    /// Its number.
    pub pid: Pid,
    /// Its command.
    pub comm: Text,
    /// Its arguments.
    pub cmdline: Vec<Text>,
    /// Its state.
    pub fate: Fate,
    /// Whether it has its own session (`setsid`).
    pub own_session: Option<bool>,
    /// The process that started it, if known: pid and command.
    pub parent: Option<(Pid, Text)>,
    /// How it was ended.
    pub ending: Ending,
    /// The line that started it, or an ancestor of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The allowance that clears it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<String>,
}

impl LeftoverProcess {
    /// Its description.
    #[must_use]
    pub fn why(&self) -> String {
        let words: Vec<_> = self.cmdline.iter().map(Text::to_lossy).collect();
        let line = if words.is_empty() {
            self.comm.to_lossy().into_owned()
        } else {
            words.join(" ")
        };
        let parent = match &self.parent {
            Some((pid, comm)) => format!(", started by {} (pid {pid})", comm.to_lossy()),
            None => String::new(),
        };
        let session = match self.own_session {
            Some(true) => " in its own session",
            _ => "",
        };
        match self.fate {
            Fate::Running => {
                format!("`{line}` was still running{session} after the program exited{parent}")
            }
            Fate::Zombie => format!("`{line}` exited and was never waited for{parent}"),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn next_step(&self) -> String {
        let how = match self.ending {
            Ending::Kept => "It was left running, as requested",
            Ending::Asked => "fdguard terminated it (SIGTERM)",
            Ending::Killed => "fdguard had to kill it (SIGKILL)",
            Ending::Ended => "fdguard reaped it",
            Ending::Failed => "fdguard could not end it",
        };
        format!(
            "{how}. Terminate and wait for every child before the program exits. If children start children, end the whole process group or session."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Fate, LeftoverProcess};

    #[test]
    fn r38_a_leftover_is_told_with_what_it_ran_and_who_started_it() {
        let orphan = LeftoverProcess {
            pid: 12,
            comm: "python3".into(),
            cmdline: vec!["python3".into(), "server.py".into()],
            fate: Fate::Running,
            own_session: Some(true),
            parent: Some((7, "bootstrap".into())),
            ending: Ending::Asked,
            origin: None,
            allowed_by: None,
        };
        assert_eq!(
            orphan.why(),
            "`python3 server.py` was still running in its own session after the program exited, started by bootstrap (pid 7)"
        );
        let zombie = LeftoverProcess {
            cmdline: Vec::new(),
            fate: Fate::Zombie,
            parent: None,
            ..orphan
        };
        assert_eq!(zombie.why(), "`python3` exited and was never waited for");
    }
}
