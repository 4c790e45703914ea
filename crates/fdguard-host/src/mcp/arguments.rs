//! Arguments of each tool. Models read the doc comments as parameter descriptions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Error;

/// A day.
const LONGEST: u64 = 86_400_000;
/// A watch that takes longer is better started in a shell.
const LONGEST_WATCH: u64 = 600;

/// Python code to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Python {
    /// Python code; may have several lines. The value of a last expression is shown.
    pub(super) code: String,
    /// Milliseconds until the code is interrupted; default 60000.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// Bash commands to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bash {
    /// Bash commands; may have several lines.
    #[serde(alias = "code")]
    pub(super) command: String,
    /// Milliseconds until the command is interrupted; default 60000.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub(super) timeout_ms: Option<u64>,
}

/// Which of your two sessions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Session to act on.
    pub(super) tool: Kind,
}

/// One of your two sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The Python session.
    Python,
    /// The shell session.
    Bash,
}

/// Files to archive.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Archive {
    /// Absolute paths of files below one of the host's roots.
    #[schemars(length(min = 1, max = 10_000))]
    pub(super) files: Vec<PathBuf>,
    /// Archive directory, below the same root. Created if missing.
    pub(super) to: PathBuf,
    /// Milliseconds to wait for writers and locks, for all files together; default 10000.
    #[schemars(range(max = 600_000))]
    pub(super) wait_ms: Option<u64>,
}

/// The process to examine.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snap {
    /// Process id; default: the host itself.
    #[schemars(range(min = 1))]
    pub(super) pid: Option<u32>,
}

/// The process to observe.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    /// Process id; default: the host itself.
    #[schemars(range(min = 1))]
    pub(super) pid: Option<u32>,
    /// Seconds to observe; default 10.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
}

/// The process whose objects are asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Why {
    /// Process id.
    #[schemars(range(min = 1))]
    pub(super) pid: u32,
    /// Seconds to wait for new descriptors if plain numbers are held: they need a second walk;
    /// default 10.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
}

/// The program to trace: `command` or `pid`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Trace {
    /// Program and arguments, one list item each. There is no shell: no pipes, globs or variables.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    pub(super) command: Vec<String>,
    /// Process id of a running program to attach to, instead of `command`.
    #[schemars(range(min = 1))]
    pub(super) pid: Option<u32>,
    /// Absolute path of the working directory; default: the host's.
    pub(super) cwd: Option<PathBuf>,
    /// Environment variables to add to the host's environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Seconds until the program receives SIGTERM, or until fdguard detaches; default 60.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
}

/// The program or server to check.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    /// Program and arguments, one list item each. There is no shell: no pipes, globs or variables.
    #[schemars(length(min = 1, max = 1000))]
    pub(super) command: Vec<String>,
    /// Absolute path of the working directory; default: the host's.
    pub(super) cwd: Option<PathBuf>,
    /// Environment variables to add to the host's environment.
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Seconds until the program receives SIGTERM; with `exercise`, the limit for the whole check;
    /// default 60.
    #[schemars(range(min = 1, max = 600))]
    pub(super) seconds: Option<u64>,
    /// For a server: shell command that uses it once. It is run repeatedly, and descriptors left
    /// open after each run are counted.
    pub(super) exercise: Option<String>,
    /// For a server: when it is ready. `tcp:PORT`, `http:URL`, or `line:REGEX` matched in its
    /// output.
    pub(super) ready: Option<String>,
    /// Number of exercise runs to count; default 30.
    #[schemars(range(min = 10, max = 100_000))]
    pub(super) cycles: Option<u32>,
    /// Accepted leftovers: each item is a class, a path or FILE:LINE.
    #[serde(default)]
    pub(super) allow: Vec<String>,
}

impl Check {
    /// The options of `fdguard check`. An option and its value are one word, so that a value that
    /// starts with a dash is not parsed as an option.
    pub(super) fn words(&self, seconds: u64) -> Vec<String> {
        let mut words = vec!["check".to_owned()];
        match &self.exercise {
            Some(exercise) => words.push(format!("--exercise={exercise}")),
            None => words.push(format!("--for={seconds}s")),
        }
        words.extend(self.ready.iter().map(|ready| format!("--ready={ready}")));
        words.extend(
            self.cycles
                .iter()
                .map(|cycles| format!("--cycles={cycles}")),
        );
        words.extend(self.allow.iter().map(|allow| format!("--allow={allow}")));
        words
    }
}

/// Parses the arguments of a call, or returns one line with the error.
pub(super) fn read<T: DeserializeOwned>(given: Option<JsonObject>) -> Result<T, Error> {
    let given = Value::Object(given.unwrap_or_default());
    let read = serde_path_to_error::deserialize(given);
    read.map_err(|error| {
        let at = error.path().to_string();
        let why = error.into_inner();
        Error::Bad(match at.as_str() {
            "." => format!("invalid arguments: {why}"),
            at => format!("invalid arguments: {at}: {why}"),
        })
    })
}

/// The time that a command may take.
pub(super) fn timeout(ms: Option<u64>) -> Result<Option<Duration>, Error> {
    within(ms, LONGEST, "timeout_ms").map(|ms| ms.map(Duration::from_millis))
}

/// The seconds of a watch.
pub(super) fn seconds(given: Option<u64>) -> Result<Option<u64>, Error> {
    within(given, LONGEST_WATCH, "seconds")
}

fn within(given: Option<u64>, most: u64, name: &str) -> Result<Option<u64>, Error> {
    match given {
        Some(number) if !(1..=most).contains(&number) => {
            let why = format!("invalid arguments: {name} must be from 1 to {most}, not {number}");
            Err(Error::Bad(why))
        }
        given => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Bash, Check, Kind, Which, read, seconds, timeout};

    #[test]
    fn a_shell_takes_a_command_by_both_names() {
        for name in ["command", "code"] {
            let given = json!({name: "true"}).as_object().cloned();
            assert_eq!(read::<Bash>(given).unwrap().command, "true");
        }
    }

    #[test]
    fn wrong_arguments_are_one_clear_line() {
        let given = json!({"tool": "perl"}).as_object().cloned();
        let error = read::<Which>(given).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid arguments: tool: unknown variant `perl`"),
            "{error}"
        );
        let error = read::<Which>(None).unwrap_err().to_string();
        assert_eq!(error, "invalid arguments: missing field `tool`");
        let given = json!({"tool": "bash"}).as_object().cloned();
        assert_eq!(read::<Which>(given).unwrap().tool, Kind::Bash);
        assert!(timeout(Some(0)).is_err());
        assert!(timeout(Some(86_400_001)).is_err());
        assert_eq!(seconds(None).unwrap(), None);
        let error = seconds(Some(601)).unwrap_err().to_string();
        assert_eq!(
            error,
            "invalid arguments: seconds must be from 1 to 600, not 601"
        );
    }

    #[test]
    fn a_check_becomes_the_options_of_the_command() {
        let given = json!({"command": ["x"], "exercise": "-v", "cycles": 12, "allow": ["a.py:3"]});
        let check: Check = read(given.as_object().cloned()).unwrap();
        let expected = ["check", "--exercise=-v", "--cycles=12", "--allow=a.py:3"];
        assert_eq!(check.words(9), expected);
        let given = json!({"command": ["x"]});
        let check: Check = read(given.as_object().cloned()).unwrap();
        assert_eq!(check.words(9), ["check", "--for=9s"]);
    }
}
